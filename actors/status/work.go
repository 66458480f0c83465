package status

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/cri"
)

// writeTimeout bounds one write, including the client's wait for its rate limit and for a Retry-After of the API server.
const writeTimeout = 20 * time.Second

// opsPrefix begins the keys of writes in the table of operations.
const opsPrefix = "status/"

// write does one write. It joins a write for the same pod that is in progress since before a restart of the actor, and
// returns the result of that one.
func write(ctx context.Context, client kubernetes.Interface, ops *cri.Operations, j *job) answer {
	a, err := cri.Run(ctx, ops, opsPrefix+j.key, writeTimeout, func(ctx context.Context) (answer, error) {
		pod, err := carryOut(ctx, client, j)
		outcome, wait := read(j.verb, err)
		return answer{job: j, pod: pod, outcome: outcome, err: err, retryAfter: wait}, nil
	})
	if err != nil { // it continues, or did not begin; the next observation shows the result
		return answer{job: j, outcome: broken, err: err}
	}
	return a
}

func carryOut(ctx context.Context, client kubernetes.Interface, j *job) (*v1.Pod, error) {
	pods := client.CoreV1().Pods(j.namespace)
	switch j.verb {
	case patchStatus:
		patch, err := patchOf(j.uid, j.from, j.to)
		if err != nil {
			return nil, err
		}
		return pods.Patch(ctx, j.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	case createMirror:
		return pods.Create(ctx, j.mirror, metav1.CreateOptions{})
	case deletePod, deleteMirror:
		now := int64(0)
		return nil, pods.Delete(ctx, j.name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(j.uid)),
		})
	default:
		return nil, fmt.Errorf("no such write: %s", j.verb)
	}
}

// patchOf returns the strategic merge patch from one status to the other. It carries the UID, which is immutable, so that it
// applies to no other pod.
func patchOf(uid types.UID, from, to *v1.PodStatus) ([]byte, error) {
	was, err := json.Marshal(v1.Pod{Status: *from})
	if err != nil {
		return nil, fmt.Errorf("the observed status: %w", err)
	}
	is, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *to})
	if err != nil {
		return nil, fmt.Errorf("the wanted status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, v1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("comparing the observed status with the wanted one: %w", err)
	}
	return patch, nil
}
