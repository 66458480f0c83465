package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrEnded is the error of Await when the awaited process has ended.
var ErrEnded = errors.New("it has ended at once")

// Await calls ready until it has no complaint, until ended is closed, or until ctx ends.
func Await(ctx context.Context, ended <-chan struct{}, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return ErrEnded
		case <-ctx.Done():
			return fmt.Errorf("it does not get ready: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
