package apiserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
)

// listWatch lists and watches the pods of this node, and records the results of the requests.
func (f *Feed) listWatch() cache.ListerWatcher {
	pods := f.opts.Clients.Main.CoreV1().Pods(metav1.NamespaceAll)
	mine := fields.OneTermEqualSelector("spec.nodeName", f.opts.NodeName).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.FieldSelector = mine; o.ResourceVersion == "0" {
				o.ResourceVersion = "" // a list older than the one seen here would end pods
			}
			f.asks()
			out, err := pods.List(ctx, o)
			f.answers(err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			f.asks()
			w, err := pods.Watch(ctx, o)
			whole := o.SendInitialEvents != nil && *o.SendInitialEvents
			if err != nil || !whole { // otherwise the list is the answer
				f.answers(err)
			}
			if err != nil {
				return nil, err
			}
			return apiclient.Observe(w, f.opts.Log, "a look at what the watch of pods brings", f.looks), nil
		},
	}, f.opts.Clients.Main)
}

// looks records an event of a watch.
func (f *Feed) looks(e watch.Event) {
	if e.Type == watch.Error {
		f.answers(apierrors.FromObject(e.Object))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.view.At, f.gone = time.Time{}, f.opts.Clock.Now(), 0
}

// asks records a pending request.
func (f *Feed) asks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked.IsZero() {
		f.asked = f.opts.Clock.Now()
	}
}

// answers records the result of a request. An expired resource version (410) is a problem only if it is reported each time: a
// full list follows.
func (f *Feed) answers(err error) {
	if f.ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.opts.Clock.Now()
	if apiclient.Gone(err) {
		f.asked = time.Time{}
		if f.gone++; f.gone < apiclient.GoneOften {
			return
		}
	} else {
		f.gone = 0
	}
	if err == nil {
		f.asked, f.view.At = time.Time{}, now
		if f.view.Problem != "" {
			f.view.Problem, f.view.Since = "", time.Time{}
			f.news()
		}
		return
	}
	what := apiclient.Explain(err, f.opts.NodeName)
	if f.view.Problem == what {
		return
	}
	if f.view.Problem == "" {
		f.view.Since = now
	}
	f.view.Problem = what
	f.news()
}
