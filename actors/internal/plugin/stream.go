package plugin

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Pace is the rate at which the agent handles a plugin's registrations, or the messages of its streams: 20 at once, and then one
// in five seconds. Each of them costs a write to the disk, a line of the log, and messages to actors.
func Pace() *rate.Limiter { return rate.NewLimiter(rate.Every(5*time.Second), 20) }

// received is the rate at which the messages of a stream are read. The plugin waits meanwhile.
const received, receivedAtOnce = rate.Limit(50), 100

// Stream is a stream of a plugin, which may send at any rate.
type Stream[T any] struct {
	// Open opens the stream. recv blocks until a message arrives, and returns an error when ctx ends.
	Open func(ctx context.Context) (recv func() (T, error), err error)
	// Join returns the message that replaces two: one that is not handled yet, and a newer one.
	Join func(older, newer T) T
	// Take handles a message. Its calls have the rate of Pace.
	Take func(T)
	Pace *rate.Limiter
	Log  *slog.Logger
}

// Follow handles the messages of the stream until it or ctx ends, and returns the error of the end. The last message is handled
// before it returns.
func (s Stream[T]) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var pending *T
	news, ended := make(chan struct{}, 1), make(chan error, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() {
		ended <- guard.Call(s.Log, "the stream of a plugin", func() error {
			return s.read(ctx, func(m T) {
				mu.Lock()
				defer mu.Unlock()
				if pending != nil {
					m = s.Join(*pending, m)
				}
				pending = &m
				select {
				case news <- struct{}{}:
				default:
				}
			})
		})
	})
	take := func() {
		mu.Lock()
		m := pending
		pending = nil
		mu.Unlock()
		if m != nil {
			s.Take(*m)
		}
	}
	for {
		select {
		case <-news:
			if s.wait(ctx, ended) {
				take()
			}
		case err := <-ended:
			take()
			return err
		}
	}
}

// wait waits for the pace, and returns early with false when the stream ends.
func (s Stream[T]) wait(ctx context.Context, ended chan error) bool {
	turn := s.Pace.Reserve()
	timer := time.NewTimer(turn.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case err := <-ended:
		turn.Cancel()
		ended <- err
		return false
	case <-ctx.Done(): // the stream ends, too
		return false
	}
}

// read passes on the messages until the stream ends.
func (s Stream[T]) read(ctx context.Context, pass func(T)) error {
	recv, err := s.Open(ctx)
	limit := rate.NewLimiter(received, receivedAtOnce)
	for err == nil {
		var m T
		if m, err = recv(); err == nil {
			pass(m)
			err = limit.Wait(ctx)
		}
	}
	return err
}
