package apiclient

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Quiet keeps client-go from logging what is reported otherwise.
func Quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Store is a cache.ReflectorStore that hands on what a reflector has.
type Store struct {
	Put, Drop func(object any)
	All       func(objects []any) // that there are; one that is not among them is none
}

// Add implements cache.ReflectorStore.
func (s Store) Add(object any) error {
	s.Put(object)
	return nil
}

// Update implements cache.ReflectorStore.
func (s Store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s Store) Delete(object any) error {
	s.Drop(object)
	return nil
}

// Replace implements cache.ReflectorStore. It is called with whole lists alone: one that broke off is none.
func (s Store) Replace(objects []any, _ string) error {
	s.All(objects)
	return nil
}

// Resync implements cache.ReflectorStore.
func (Store) Resync() error { return nil }

// Observe is a watch whose events are looked at on their way. A panic of look, which what names, is logged and ends the watch, so
// that who watches begins another after a back-off. watch.Filter leaves a goroutine behind where it is stopped.
func Observe(inner watch.Interface, log *slog.Logger, what string, look func(watch.Event)) watch.Interface {
	events := make(chan watch.Event)
	out := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer inner.Stop()
		for {
			select {
			case <-out.StopChan():
				return
			case e, more := <-inner.ResultChan():
				if !more || guard.Call(log, what, func() error { look(e); return nil }) != nil {
					return
				}
				select {
				case <-out.StopChan():
					return
				case events <- e:
				}
			}
		}
	}()
	return out
}

// Gone says that the API server has forgotten what came since (410), after which all is asked for.
func Gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// GoneOften is how many of these in a row are told: a watch and a list that follow from what is known may both have one before
// all is asked for.
const GoneOften = 4
