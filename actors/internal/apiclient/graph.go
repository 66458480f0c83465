package apiclient

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The waits between requests of AwaitGraph: 10 ms, doubling, 2.5 s in all.
const (
	graphWait  = 10 * time.Millisecond
	graphTries = 9
)

// AwaitGraph sends a request for an object or a token of a pod until the API server knows that the pod is on this node. Its
// graph of nodes, pods and their objects follows a watch and may have the pod later than the node: until then it refuses the
// request, or does not find the pod. An answer that stays so for 2.5 s is returned.
func AwaitGraph[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for try, pause := 1, graphWait; ; try, pause = try+1, 2*pause {
		answer, err := request(ctx)
		if try == graphTries || !lags(err) {
			return answer, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return answer, err
		}
	}
}

// lags reports whether an error may be of a graph that does not have a new pod yet.
func lags(err error) bool {
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		return status.Status().Details != nil && status.Status().Details.Kind == "pods"
	}
	return apierrors.IsForbidden(err)
}
