package objectset

import (
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// InCluster declares that there is an API server, and static pods may name its RuntimeClasses. Call it before the board is
// shared.
func (b *Board) InCluster() { b.cluster = true }

// RuntimeHandler returns the runtime's handler for the pod: its RuntimeClass's, or "" for a pod without one. A pod of the API
// server uses the classes there. A static pod uses the folder's and, on a node of a cluster, the API server's as well. The
// caller must wait on an error that IsUnread; any other error names the class, as the kubelet does.
func (b *Board) RuntimeHandler(pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	name := *pod.Spec.RuntimeClassName
	if b == nil {
		return "", noClasses(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fromAPI, fromFolder := OfAPIServer(pod) || b.cluster, !OfAPIServer(pod) && !b.noFolder
	if fromFolder {
		if b.set == nil {
			return "", fmt.Errorf("RuntimeClass %q: %w", name, unreadError{ErrUnread})
		}
		if handler, found := b.set.RuntimeClasses[name]; found {
			return handler, nil
		}
	}
	switch {
	case fromAPI && b.classes.all == nil:
		return "", fmt.Errorf("RuntimeClass %q: %w", name, unreadError{b.classes.err})
	case fromAPI:
		if handler, found := b.classes.all[name]; found {
			return handler, nil
		}
		missing := apierrors.NewNotFound(nodev1.Resource("runtimeclass"), name)
		if fromFolder {
			return "", fmt.Errorf("%w, nor is it in the folder of objects (--object-dir)", missing)
		}
		return "", missing
	case fromFolder:
		return "", errors.New("RuntimeClass " + strconv.Quote(name) + " does not exist in the folder of objects (--object-dir)")
	}
	return "", noClasses(name)
}

func noClasses(name string) error {
	return fmt.Errorf(
		"RuntimeClass %q: this node has neither an API server nor a folder of objects (--object-dir) that could have it", name)
}
