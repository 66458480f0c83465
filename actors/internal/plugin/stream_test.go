package plugin

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

var errEnd = errors.New("the end")

// count is a stream of so many numbers without pause. It ends afterwards, or sends no more.
func count(n int, ends bool, got *[]int) Stream[int] {
	return Stream[int]{
		Open: func(ctx context.Context) (func() (int, error), error) {
			sent := 0
			return func() (int, error) {
				if sent++; sent <= n {
					return sent, nil
				}
				if !ends {
					<-ctx.Done()
				}
				return 0, errEnd
			}, nil
		},
		Join: func(_, newer int) int { return newer },
		Take: func(n int) { *got = append(*got, n) },
		Pace: Pace(),
		Log:  slog.New(slog.DiscardHandler),
	}
}

// A plugin that sends without pause has its newest message handled, at a bounded rate. The rest are never handled.
func TestStream_OfManyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		s := count(10_000, false, &got)
		done := make(chan error)
		go func() { done <- s.Follow(ctx) }()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-done; !errors.Is(err, errEnd) {
			t.Error(err)
		}
		most := s.Pace.Burst() + int(time.Since(began).Seconds()*float64(s.Pace.Limit()))
		if len(got) > most || len(got) < s.Pace.Burst() || got[len(got)-1] != 10_000 || !slices.IsSorted(got) {
			t.Errorf("handled %d messages, at most %d are permitted: %v", len(got), most, got)
		}
	})
}

// The last message before the end of a stream is handled, however many were handled before.
func TestStream_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 1, 50} {
			var got []int
			s := count(n, true, &got)
			s.Pace = rate.NewLimiter(rate.Every(time.Hour), 1)
			if err := s.Follow(t.Context()); !errors.Is(err, errEnd) {
				t.Error(err)
			}
			if n > 0 && (len(got) == 0 || got[len(got)-1] != n) || len(got) > 2 {
				t.Errorf("of %d messages %v were handled", n, got)
			}
		}
	})
}

// A stream that cannot be opened, and one that panics, end with an error.
func TestStream_ThatFails(t *testing.T) {
	var got []int
	s := count(1, true, &got)
	s.Open = func(context.Context) (func() (int, error), error) { return nil, errEnd }
	if err := s.Follow(t.Context()); !errors.Is(err, errEnd) {
		t.Error(err)
	}
	s.Open = func(context.Context) (func() (int, error), error) { panic("broken") }
	if err := s.Follow(t.Context()); err == nil || len(got) > 0 {
		t.Errorf("%v, %v", err, got)
	}
}
