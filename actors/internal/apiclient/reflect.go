package apiclient

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

const versionTimeout = 30 * time.Second

// Gone says that the API server has forgotten what came since (410), after which all is asked for.
func Gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// GoneOften is how many of these in a row are told: a watch and a list that follow from what is known may both have one before
// all is asked for.
const GoneOften = 4

// ErrWentBack is for a reflector in place of a watch, where WentBack.
var ErrWentBack = apierrors.NewResourceExpired("the API server is older than what it said before")

// WentBack says that the API server's newest resource version is older than seen, one that it gave before: it was restored from
// a backup. A watch from the newer one would say nothing until it is reached again, so that all has to be listed anew, by a
// reflector that remembers nothing. list is asked for one object, for 30 s at most; where it fails nothing is said.
func WentBack(ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error), seen string) bool {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false // the watch says the same, and better
	}
	meta, ok := out.(metav1.ListInterface)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(meta.GetResourceVersion(), seen)
	return err == nil && order < 0
}
