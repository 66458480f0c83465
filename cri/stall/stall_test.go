package stall

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Hour

// timers waits until the context has reset its timer.
func timers(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !clock.HasWaiters(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the deadline was not set again")
		}
	}
}

func TestContext_WorkThatProgressesIsNotEnded(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := New(t.Context(), clock, limit)
	defer cancel()
	below, end := context.WithCancel(context.WithValue(ctx, "k", "v")) //nolint:staticcheck // only a test sees the key
	defer end()
	for range 100 {
		Progress(below, nil)
		clock.Step(limit)
		timers(t, clock)
		if err := ctx.Err(); err != nil {
			t.Fatalf("ended while it progressed: %v", err)
		}
	}
	clock.Step(limit)
	<-below.Done()
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stalled: %v, want DeadlineExceeded", err)
	}
	if clock.HasWaiters() {
		t.Error("the timer is left")
	}
}

func TestContext_EndsWithItsParent(t *testing.T) {
	parent, end := context.WithCancel(t.Context())
	ctx, cancel := New(parent, clocktesting.NewFakeClock(time.Now()), limit)
	defer cancel()
	end()
	<-ctx.Done()
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the parent's end", err)
	}
}

func TestContext_KeepsTheLastNote(t *testing.T) {
	ctx, cancel := New(t.Context(), clocktesting.NewFakeClock(time.Now()), limit)
	defer cancel()
	if ctx.Note() != nil {
		t.Errorf("a new context has the note %v", ctx.Note())
	}
	Progress(ctx, "half")
	Progress(ctx, nil)
	if ctx.Note() != "half" {
		t.Errorf("the note is %v, want half", ctx.Note())
	}
	Progress(t.Context(), "nobody") // no effect without a Context
}
