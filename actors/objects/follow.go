package objects

import (
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/backoff"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

const (
	getTimeout = 10 * time.Second
)

var (
	readRetry = backoff.Policy{First: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: backoff.Half}
	// The Node authorizer allows a node what its pods name, and learns of a pod when the node does: whichever is first.
	forbiddenRetry = backoff.Policy{First: 50 * time.Millisecond, Max: 10 * time.Second, Jitter: backoff.Half}
)

// follower reads one object and follows it. A read comes first, since its answer is the newest that there is and comes soon;
// then a reflector takes over. Both are of this one object, by its name: a node may see no others.
type follower struct {
	cluster *cluster
	ref     objectset.Ref
	cancel  context.CancelFunc
	// unwatch ends the watch alone, of an object that says it never changes.
	unwatch context.CancelFunc
	trouble
}

func (f *follower) run(ctx context.Context) {
	for {
		if !f.read(ctx) {
			return
		}
		if f.cluster.opts.Poll == 0 {
			break
		}
		if f.immutable() || !pause(ctx, wait.Jitter(f.cluster.opts.Poll, backoff.Half)) {
			return
		}
	}
	ctx, f.unwatch = context.WithCancel(ctx)
	defer f.unwatch()
	if f.immutable() {
		return
	}
	f.requests().reflect(ctx, f.cluster.opts.Client, f.kind(), store{f}, cache.ReflectorOptions{
		Name: f.ref.String(), TypeDescription: string(f.ref.Kind),
	})
}

// read reads the object until that succeeds, and says whether to go on.
func (f *follower) read(ctx context.Context) bool {
	for failures := 1; ; failures++ {
		object, err := f.get(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err):
			f.put(nil)
			return true
		case err == nil:
			f.put(object)
			return true
		}
		f.failed(err)
		retry := readRetry
		if apierrors.IsForbidden(err) {
			retry = forbiddenRetry
		}
		if !pause(ctx, retry.After(failures, rand.Float64())) { //nolint:gosec // nothing secret hangs on it
			return false
		}
	}
}

func (f *follower) get(ctx context.Context) (runtime.Object, error) {
	if !f.cluster.slot(ctx) {
		return nil, ctx.Err()
	}
	defer f.cluster.free()
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	core := f.cluster.opts.Client.CoreV1()
	if f.ref.Kind == objectset.Secret {
		return core.Secrets(f.ref.Namespace).Get(ctx, f.ref.Name, metav1.GetOptions{})
	}
	return core.ConfigMaps(f.ref.Namespace).Get(ctx, f.ref.Name, metav1.GetOptions{})
}

func (f *follower) kind() runtime.Object {
	if f.ref.Kind == objectset.Secret {
		return &v1.Secret{}
	}
	return &v1.ConfigMap{}
}

// requests list and watch the one object. What fails is noted.
func (f *follower) requests() requests {
	client := f.cluster.opts.Client
	secrets, configMaps := client.CoreV1().Secrets(f.ref.Namespace), client.CoreV1().ConfigMaps(f.ref.Namespace)
	only := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.ref.Name).String()
		return o
	}
	if f.ref.Kind == objectset.Secret {
		return requests{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return secrets.List(ctx, only(o))
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return secrets.Watch(ctx, only(o))
			},
			noted: f.noted,
		}
	}
	return requests{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return configMaps.List(ctx, only(o))
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return configMaps.Watch(ctx, only(o))
		},
		noted: f.noted,
	}
}

// noted notes an error of the reflector, or that there is none.
func (f *follower) noted(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		f.cluster.well(f)
	default:
		f.failed(err)
	}
	return err
}

func (f *follower) failed(err error) { f.cluster.failed(f, err) }

// put takes what the API server has; nil for nothing.
func (f *follower) put(object any) { f.cluster.put(f, slim(object)) }

func (f *follower) immutable() bool { return f.cluster.immutable(f.ref) }

// store is where the reflector puts the object.
type store struct{ f *follower }

// Add implements cache.ReflectorStore.
func (s store) Add(object any) error {
	if named(object, s.f.ref.Name) {
		s.f.put(object)
		if s.f.immutable() {
			s.f.unwatch()
		}
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s store) Delete(object any) error {
	if named(object, s.f.ref.Name) {
		s.f.put(nil)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s store) Replace(objects []any, _ string) error {
	for _, o := range objects {
		if named(o, s.f.ref.Name) {
			return s.Add(o)
		}
	}
	s.f.put(nil)
	return nil
}

// Resync implements cache.ReflectorStore.
func (store) Resync() error { return nil }

func named(object any, name string) bool {
	o, ok := object.(metav1.Object)
	return ok && o.GetName() == name
}

// slim is the object without what nobody here reads.
func slim(object any) any {
	switch o := object.(type) {
	case *v1.ConfigMap:
		out := *o
		out.ManagedFields = nil
		return &out
	case *v1.Secret:
		out := *o
		out.ManagedFields = nil
		return &out
	}
	return nil
}

// pause waits, and says whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
