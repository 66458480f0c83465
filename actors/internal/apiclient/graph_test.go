package apiclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A request that is refused while the API server does not have the pod yet is repeated, first within 50 ms; other errors are
// returned at once, and one that stays after 2.5 s.
func TestAwaitGraph(t *testing.T) {
	pods, accounts := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "serviceaccounts"}
	forbidden := apierrors.NewForbidden(accounts, "web", errors.New("no relationship found between node and this object"))
	for name, c := range map[string]struct {
		answers []error // the last is repeated
		tries   int
		within  time.Duration
		age     time.Duration // of the pod
	}{
		"known":           {[]error{nil}, 1, 0, 0},
		"not known yet":   {[]error{forbidden, apierrors.NewNotFound(pods, "web"), nil}, 3, 50 * time.Millisecond, 0},
		"old pod":         {[]error{forbidden}, 1, 0, time.Hour},
		"pod of later":    {[]error{forbidden}, 1, 0, -24 * 365 * time.Hour}, // by the API server's clock
		"never":           {[]error{forbidden}, graphTries, 3 * time.Second, 0},
		"no such account": {[]error{apierrors.NewNotFound(accounts, "web")}, 1, 0, 0},
		"away":            {[]error{errors.New("connection refused")}, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, tries := time.Now(), 0
				_, err := AwaitGraph(t.Context(), podOf(time.Now().Add(-c.age)), func(context.Context) (int, error) {
					tries++
					return tries, c.answers[min(tries, len(c.answers))-1]
				})
				if want := c.answers[len(c.answers)-1]; tries != c.tries || !errors.Is(err, want) || time.Since(began) > c.within {
					t.Errorf("got %v after %d requests in %s, want %v after %d", err, tries, time.Since(began), want, c.tries)
				}
			})
		})
	}
}

// podOf is a pod of long ago that was bound to its node at a time.
func podOf(bound time.Time) *v1.Pod {
	return &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(bound)}}}}
}

// No pod stands for an object that the API server allows to no pod, such as a VolumeAttachment: it is read once.
func TestAwaitGraph_WithoutPod(t *testing.T) {
	tries := 0
	_, _ = AwaitGraph(t.Context(), nil, func(context.Context) (int, error) {
		tries++
		return 0, apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachments"}, "x", nil)
	})
	if tries != 1 {
		t.Errorf("%d requests, want one", tries)
	}
}

// The wait ends with its context, and returns the last answer.
func TestAwaitGraphIsCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", nil)
	_, err := AwaitGraph(ctx, podOf(time.Now()), func(context.Context) (int, error) { cancel(); return 0, refused })
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want the answer of the API server", err)
	}
}
