package cri

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/cri/stall"
)

func TestOperationsJoin(t *testing.T) {
	o := NewOperations()
	leave := make(chan struct{})
	var begun atomic.Int32
	work := func(context.Context) (any, error) {
		begun.Add(1)
		<-leave
		return "done", nil
	}
	const callers = 10
	results := make(chan any, callers)
	for range callers {
		go func() {
			got, err := o.Do(t.Context(), "start/a", time.Minute, work)
			if err != nil {
				t.Error(err)
			}
			results <- got
		}()
	}
	waitFor(t, func() bool { return o.Waiting("start/a") == callers })
	if got := o.InFlight(""); !slices.Equal(got, []string{"start/a"}) {
		t.Errorf("in flight: %v", got)
	}
	close(leave)
	for range callers {
		if got := <-results; got != "done" {
			t.Errorf("result %v", got)
		}
	}
	if got := o.InFlight(""); len(got) != 0 || begun.Load() != 1 || o.Waiting("start/a") != 0 {
		t.Errorf("left over: %v, begun %d times", got, begun.Load())
	}
}

// TestOperationsOutliveTheirCaller cancels the caller and expects the operation to continue.
func TestOperationsOutliveTheirCaller(t *testing.T) {
	o := NewOperations()
	ctx, cancel := context.WithCancel(WithPriority(t.Context(), 42))
	entered, leave := make(chan struct{}), make(chan struct{})
	work := func(ctx context.Context) (any, error) {
		close(entered)
		<-leave
		return Priority(ctx), ctx.Err()
	}
	first := make(chan error, 1)
	go func() {
		_, err := o.Do(ctx, "start/a", time.Minute, work)
		first <- err
	}()
	<-entered
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "start/a") {
		t.Fatalf("the caller that left: %v", err)
	}
	second := make(chan any, 1)
	go func() {
		got, err := o.Do(t.Context(), "start/a", time.Minute, func(context.Context) (any, error) {
			return nil, errors.New("a second operation was begun")
		})
		if err != nil {
			t.Error(err)
		}
		second <- got
	}()
	waitFor(t, func() bool { return o.Waiting("start/a") == 1 })
	settled := make(chan error, 1)
	go func() { settled <- o.Settle(t.Context(), "start/") }()
	close(leave)
	if got := <-second; got != int64(42) {
		t.Errorf("the joiner got %v, want the first caller's priority", got)
	}
	if err := <-settled; err != nil {
		t.Error(err)
	}
}

func TestOperations_ProgressPutsOffTheDeadline(t *testing.T) {
	o, clock := NewOperations(), clocktesting.NewFakeClock(time.Now())
	o.clock = clock
	ended := make(chan error, 1)
	report, reported := make(chan string), make(chan struct{})
	go func() {
		_, err := o.Do(t.Context(), "mount/a", time.Minute, func(ctx context.Context) (any, error) {
			for {
				select {
				case note := <-report:
					stall.Progress(ctx, note)
					reported <- struct{}{}
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		ended <- err
	}()
	for _, note := range []string{"1 file", "2 files", "3 files"} {
		report <- note
		<-reported
		if got := o.Progress("mount/a"); got != note {
			t.Errorf("progress is %v, want %s", got, note)
		}
		clock.Step(time.Minute)
		waitFor(t, clock.HasWaiters)
	}
	clock.Step(time.Minute)
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an operation that stalls ended with %v", err)
	}
	if got := o.Progress("mount/a"); got != nil {
		t.Errorf("progress of no operation is %v", got)
	}
}

func TestOperationsHaveTheirOwnDeadline(t *testing.T) {
	o := NewOperations()
	_, err := o.Do(t.Context(), "stop/a", time.Millisecond, func(ctx context.Context) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := o.Do(t.Context(), "stop/a", 0, nil); err == nil {
		t.Error("an operation without an end was begun")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Do(ended, "stop/a", time.Minute, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended caller began one: %v", err)
	}
}

func TestOperationsPanic(t *testing.T) {
	o := NewOperations()
	for name, work := range map[string]func(context.Context) (any, error){
		"panic":  func(context.Context) (any, error) { panic("boom") },
		"goexit": func(context.Context) (any, error) { runtime.Goexit(); return nil, nil },
	} {
		leave := make(chan struct{})
		const callers = 3
		failures := make(chan error, callers)
		for range callers {
			go func() {
				_, err := o.Do(t.Context(), name, time.Minute, func(ctx context.Context) (any, error) {
					<-leave
					return work(ctx)
				})
				failures <- err
			}()
		}
		waitFor(t, func() bool { return o.Waiting(name) == callers })
		close(leave)
		for range callers {
			err := <-failures
			p, ok := errors.AsType[*PanicError](err)
			if !ok || p.Key != name || len(p.Stack) == 0 || p.Value == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := o.InFlight(""); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
}

func TestOperationsSettleAndClose(t *testing.T) {
	o := NewOperations()
	leave := make(chan struct{})
	entered := make(chan struct{}, 2)
	var callers sync.WaitGroup
	for _, key := range []string{"a/1", "b/1"} {
		callers.Go(func() {
			if _, err := o.Do(t.Context(), key, time.Minute, func(context.Context) (any, error) {
				entered <- struct{}{}
				<-leave
				return nil, nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	<-entered
	if err := o.Settle(t.Context(), "c/"); err != nil {
		t.Errorf("nothing to settle: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Settle(ended, "a/"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "a/1") ||
		strings.Contains(err.Error(), "b/1") {
		t.Errorf("an unfinished settle: %v", err)
	}
	if err := o.Close(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "a/1, b/1") {
		t.Errorf("an unfinished close: %v", err)
	}
	if _, err := o.Do(t.Context(), "c/1", time.Minute, nil); !errors.Is(err, ErrOperationsClosed) {
		t.Errorf("a new operation after close: %v", err)
	}
	close(leave)
	if err := o.Close(t.Context()); err != nil {
		t.Error(err)
	}
	callers.Wait()
}

func TestRunTyped(t *testing.T) {
	o := NewOperations()
	got, err := Run(t.Context(), o, "k", time.Minute, func(context.Context) (string, error) { return "id", nil })
	if err != nil || got != "id" {
		t.Errorf("%q, %v", got, err)
	}
	none, err := Run(t.Context(), o, "k", time.Minute, func(context.Context) (error, error) { return nil, nil })
	if err != nil || none != nil {
		t.Errorf("%v, %v", none, err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), o, "k", time.Minute, func(context.Context) (int, error) {
			close(entered)
			<-leave
			return 1, nil
		})
		first <- err
	}()
	<-entered
	other := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), o, "k", time.Minute, func(context.Context) (string, error) { return "", errors.New("begun") })
		other <- err
	}()
	waitFor(t, func() bool { return o.Waiting("k") == 2 })
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-other; err == nil || !strings.Contains(err.Error(), "string") {
		t.Errorf("a result of another type was accepted: %v", err)
	}
}
