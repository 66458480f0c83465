package apiclient

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

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
