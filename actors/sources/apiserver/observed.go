package apiserver

import (
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/playlet-dev/playlet/supervisors/guard"
)

// observed is a watch whose events are looked at on their way. It ends with Stop, also while nobody takes an event.
type observed struct {
	inner watch.Interface
	out   chan watch.Event
	quit  chan struct{}
	once  sync.Once
}

// observe begins to look at what a watch brings. A panic of look is logged and ends the watch, so that its reflector begins
// another after a back-off.
func observe(inner watch.Interface, look func(watch.Event), log *slog.Logger) *observed {
	o := &observed{inner: inner, out: make(chan watch.Event), quit: make(chan struct{})}
	go func() {
		defer close(o.out)
		_ = guard.Call(log, "a look at what the watch of pods brings", func() error {
			for e := range inner.ResultChan() {
				look(e)
				select {
				case o.out <- e:
				case <-o.quit:
					return nil
				}
			}
			return nil
		})
	}()
	return o
}

// Stop implements watch.Interface.
func (o *observed) Stop() {
	o.once.Do(func() { close(o.quit) })
	o.inner.Stop()
}

// ResultChan implements watch.Interface.
func (o *observed) ResultChan() <-chan watch.Event { return o.out }
