package overdue

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAReadingThatEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, want := range []error{nil, broken} {
		r := New("it", time.Hour, func() (int, error) { return 7, want })
		for range 2 {
			if v, err := r.Get(t.Context()); v != 7 || !errors.Is(err, want) {
				t.Errorf("%d, %v", v, err)
			}
		}
	}
	r := New("it", time.Hour, func() (int, error) { panic("a bug") })
	if _, err := r.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "it: panic: a bug") {
		t.Error(err)
	}
}

// One that hangs is named, in the same words each time, and is the only one; when it ends, the next is a new one.
func TestAReadingThatHangs(t *testing.T) {
	var calls atomic.Int32
	back := make(chan struct{})
	r := New("the disk", time.Millisecond, func() (int, error) {
		calls.Add(1)
		<-back
		return 7, nil
	})
	_, first := r.Get(t.Context())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, second := r.Get(ended)
	if first == nil || second == nil || first.Error() != second.Error() ||
		!strings.Contains(first.Error(), "the disk: it is being read since ") {
		t.Errorf("%v, then %v", first, second)
	}
	if n := calls.Load(); n > 1 { // it may yet have to begin
		t.Errorf("%d readings are under way", n)
	}
	r.timeout = time.Hour
	close(back)
	if v, err := r.Get(t.Context()); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}
