package eviction

import "sync"

// workGroup runs functions concurrently. Wait repeats a panic of one of them on the caller's goroutine, where it restarts the
// actor instead of ending the agent. The zero value can be used.
type workGroup struct {
	// broken is called after a panic, to end the others; nil: they end by themselves.
	broken func()

	all      sync.WaitGroup
	mu       sync.Mutex
	panicked any // the first
}

func (t *workGroup) Go(run func()) {
	t.all.Go(func() {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.panicked == nil {
				t.panicked = p
			}
			if t.broken != nil {
				t.broken()
			}
		}()
		run()
	})
}

// Wait waits until all have ended.
func (t *workGroup) Wait() {
	if t.all.Wait(); t.panicked != nil {
		panic(t.panicked)
	}
}
