package apiclient

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Quiet turns off client-go's log for errors that are reported in other ways.
func Quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Store is a cache.ReflectorStore that passes the objects of a reflector to functions.
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

// Observe returns a watch that calls look with each event. A panic of look is logged under name and ends the watch, so that
// the watcher starts another one after a back-off. watch.Filter is not used: it leaks a goroutine when it is stopped.
func Observe(inner watch.Interface, log *slog.Logger, name string, look func(watch.Event)) watch.Interface {
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
				if !more || guard.Call(log, name, func() error { look(e); return nil }) != nil {
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

// Gone reports whether the API server has dropped the requested resource version (410). A full list follows.
func Gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// GoneOften is the number of such errors in a row that is reported. A watch and a list from a known version may each have one
// before the full list.
const GoneOften = 4
