package stats

import (
	"context"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

// leastAge is the minimum interval between two readings of one kind.
const leastAge = time.Second

// part is one kind of figures. It is read on request if the last reading is too old; concurrent requests share a reading. Safe
// for concurrent use.
type part[T any] struct {
	reading *overdue.Reader[T]
	now     func() time.Time

	mu   sync.Mutex
	last T
	at   time.Time // start of the last successful reading
}

// newPart returns a part; timeout limits the wait for a reading.
func newPart[T any](what string, timeout time.Duration, now func() time.Time, read func() (T, error)) *part[T] {
	p := &part[T]{now: now}
	p.reading = overdue.New(what, timeout, func() (T, error) {
		if value, fresh := p.within(leastAge); fresh {
			return value, nil // another reading succeeded in the meantime
		}
		began := now()
		value, err := read()
		if err == nil {
			p.mu.Lock()
			p.last, p.at = value, began
			p.mu.Unlock()
		}
		return value, err
	})
	return p
}

// get returns figures that are younger than age. With an error it returns the previous ones, if any.
func (p *part[T]) get(ctx context.Context, age time.Duration) (T, error) {
	if value, fresh := p.within(age); fresh {
		return value, nil
	}
	value, err := p.reading.Get(ctx)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last, err
	}
	return value, nil
}

func (p *part[T]) within(age time.Duration) (T, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, !p.at.IsZero() && p.now().Sub(p.at) < age
}
