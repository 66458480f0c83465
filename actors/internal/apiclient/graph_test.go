package apiclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	}{
		"known":           {[]error{nil}, 1, 0},
		"not known yet":   {[]error{forbidden, apierrors.NewNotFound(pods, "web"), nil}, 3, 50 * time.Millisecond},
		"never":           {[]error{forbidden}, graphTries, 3 * time.Second},
		"no such account": {[]error{apierrors.NewNotFound(accounts, "web")}, 1, 0},
		"away":            {[]error{errors.New("connection refused")}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, tries := time.Now(), 0
				_, err := AwaitGraph(t.Context(), func(context.Context) (int, error) {
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

// The wait ends with its context, and returns the last answer.
func TestAwaitGraphIsCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", nil)
	_, err := AwaitGraph(ctx, func(context.Context) (int, error) { cancel(); return 0, refused })
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want the answer of the API server", err)
	}
}
