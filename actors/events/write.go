package events

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// callTimeout bounds one request, the wait for its turn in the client's limits and the repetitions that the API server
	// asks for included.
	callTimeout = 30 * time.Second
	// batchTimeout bounds a batch; unsent events are left to the next one.
	batchTimeout = 2 * time.Minute
)

// batchResult is the result of writing a batch.
type batchResult struct {
	done    uint64
	refused uint64
	refusal error // the last one
	left    []*item
	// unreached is why the batch was not written to its end; nil where it was.
	unreached error
}

// write gives the API server a batch, in its order, up to the first that does not reach it.
func write(ctx context.Context, client corev1.EventsGetter, items []*item) batchResult {
	var out batchResult
	begun := time.Now()
	for n, i := range items {
		if time.Since(begun) > batchTimeout {
			out.left = items[n:]
			return out
		}
		err := writeOne(ctx, client, i)
		switch {
		case err == nil:
			out.done++
		case isRefusal(err):
			out.refused++
			out.refusal = err
		default:
			out.left, out.unreached = items[n:], err
			return out
		}
	}
	return out
}

// writeOne creates an Event, or changes the one that is there to this state of it. Whichever of the two turns out wrong, the
// other is done: an Event may have expired, and an answer may have been lost.
func writeOne(ctx context.Context, client corev1.EventsGetter, i *item) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	events := client.Events(i.event.Namespace)
	create := func() error {
		_, err := events.Create(ctx, i.event, metav1.CreateOptions{})
		return err
	}
	patch := func() error {
		_, err := events.Patch(ctx, i.event.Name, types.StrategicMergePatchType, i.patch, metav1.PatchOptions{})
		return err
	}
	if !i.create {
		err := patch()
		if apierrors.IsNotFound(err) {
			err = create()
		}
		return err
	}
	err := create()
	switch {
	case !apierrors.IsAlreadyExists(err):
		return err
	case i.patch == nil:
		return nil
	}
	return patch()
}

// isRefusal reports whether a retry would get the same answer: the namespace is terminating or gone, the event is invalid, or
// the node lacks the permission. Overload, server errors and failed authentication are retried; a new certificate may be on
// its way.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[*rest.RequestConstructionError](err); ok {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; {
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusUnauthorized,
		code == http.StatusRequestTimeout, code == 0:
		return false
	default:
		return true
	}
}
