package apiclient

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The waits between requests of AwaitGraph: 10 ms, doubling, 2.5 s in all.
const (
	graphWait  = 10 * time.Millisecond
	graphTries = 9
	// graphLag is how long after its binding to this node a pod counts as new to the API server.
	graphLag = time.Minute
)

// AwaitGraph sends a request for an object or a token of a pod until the API server knows that the pod is on this node. Its
// graph of nodes, pods and their objects follows a watch and may have the pod later than the node: until then it refuses the
// request, or does not find the pod. An answer that stays so for 2.5 s is returned, and at once where the pod is not new. A nil
// pod stands for none.
func AwaitGraph[T any](ctx context.Context, pod *v1.Pod, request func(context.Context) (T, error)) (T, error) {
	for try, pause := 1, graphWait; ; try, pause = try+1, 2*pause {
		answer, err := request(ctx)
		if try == graphTries || !lags(err) || pod == nil || !fresh(pod) {
			return answer, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return answer, err
		}
	}
}

// fresh reports whether a pod was bound a short time ago. The time is of the API server's clock: a pod of the future is not
// fresh, or each refusal would be retried while that clock is ahead.
func fresh(pod *v1.Pod) bool { return time.Since(bound(pod)).Abs() <= graphLag }

// bound returns when a pod was bound to its node, or created where that is not known.
func bound(pod *v1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// lags reports whether an error may be of a graph that does not have a new pod yet.
func lags(err error) bool {
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		return status.Status().Details != nil && status.Status().Details.Kind == "pods"
	}
	return apierrors.IsForbidden(err)
}
