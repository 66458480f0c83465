package objects

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

const getTimeout = 10 * time.Second

var (
	readRetry = backoff.Policy{First: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: backoff.Half}
	// The Node authorizer may learn of a pod later than the node, so the first retries are short.
	forbiddenRetry = backoff.Policy{First: 50 * time.Millisecond, Max: 10 * time.Second, Jitter: backoff.Half}
)

// follower reads one object and follows it. A read comes first, since its answer is the newest that there is and comes soon;
// then a reflector takes over. Both are of this one object, by its name: a node may see no others.
type follower struct {
	cluster *cluster
	ref     objectset.Ref
	pod     types.UID
	hasRead bool // it has published an answer; guarded by the cluster's lock
	cancel  context.CancelFunc
	// unwatch ends the watch alone, for an immutable object.
	unwatch context.CancelFunc
	failureState
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
	kind, requests, _ := f.client()
	requests.reflect(ctx, f.cluster.opts.Client, kind, f.store(), cache.ReflectorOptions{
		Name: f.ref.String(), TypeDescription: string(f.ref.Kind),
	})
}

// read reads the object until it succeeds, and returns whether to continue.
func (f *follower) read(ctx context.Context) bool {
	for failures := 1; ; failures++ {
		object, err := f.get(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case apiclient.Absent(err):
			f.put(nil)
			return true
		case err == nil:
			f.put(object)
			return true
		}
		f.cluster.failed(f, err)
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
	release, err := f.cluster.reads.Wait(ctx, "namespace "+f.ref.Namespace, "pod "+string(f.pod))
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	_, _, read := f.client()
	return read(ctx)
}

// client returns the get, list and watch requests for the one object. Failures of the latter two are recorded.
func (f *follower) client() (kind runtime.Object, r requests, get func(context.Context) (runtime.Object, error)) {
	core, only := f.cluster.opts.Client.CoreV1(), fields.OneTermEqualSelector(metav1.ObjectNameField, f.ref.Name).String()
	if f.ref.Kind == objectset.Secret {
		secrets := core.Secrets(f.ref.Namespace)
		return &v1.Secret{}, of(secrets, only, f.handleAnswer), func(ctx context.Context) (runtime.Object, error) {
			return secrets.Get(ctx, f.ref.Name, metav1.GetOptions{})
		}
	}
	configMaps := core.ConfigMaps(f.ref.Namespace)
	return &v1.ConfigMap{}, of(configMaps, only, f.handleAnswer), func(ctx context.Context) (runtime.Object, error) {
		return configMaps.Get(ctx, f.ref.Name, metav1.GetOptions{})
	}
}

// handleAnswer notes an error of the reflector, or that there is none.
func (f *follower) handleAnswer(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		_ = f.cluster.answered(&f.failureState, nil)
	default:
		f.cluster.failed(f, err)
	}
	return err
}

// put publishes the API server's object; nil means that it does not exist.
func (f *follower) put(object any) { f.cluster.put(f, slim(object)) }

// immutable reports whether the object is present and marked immutable.
func (f *follower) immutable() bool { return f.cluster.opts.Board.Immutable(f.ref) }

// store is where the reflector puts the object.
func (f *follower) store() apiclient.Store {
	mine := func(object any) bool {
		o, ok := object.(metav1.Object)
		return ok && o.GetName() == f.ref.Name
	}
	put := func(object any) {
		if !mine(object) {
			return
		}
		if f.put(object); f.immutable() {
			f.unwatch()
		}
	}
	return apiclient.Store{
		Put: put,
		Drop: func(object any) {
			if mine(object) {
				f.put(nil)
			}
		},
		All: func(objects []any) {
			if i := slices.IndexFunc(objects, mine); i >= 0 {
				put(objects[i])
			} else {
				f.put(nil)
			}
		},
	}
}

// slim returns a copy of the object without unused fields.
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

// pause waits, and returns whether to continue.
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
