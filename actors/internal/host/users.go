package host

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/userns"
	"github.com/playlet-dev/playlet/cri/translate"
)

// NewUsers returns the user namespace of a pod's new sandbox, which the runtime's handler is to run; nil: the host's.
func (h *Host) NewUsers(ctx context.Context, pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(pod) {
		return nil, nil //nolint:nilnil // the host's
	}
	switch able := h.Can().UserNamespaces[handler]; {
	case able && h.Users != nil:
		return h.users(ctx, pod, h.Users.Take)
	case handler != "":
		return nil, &translate.ConfigError{Err: fmt.Errorf("spec.hostUsers is false, which handler %q of this container "+
			"runtime, or this kernel, cannot do: see playlet doctor", handler)}
	}
	return nil, &translate.ConfigError{Err: errors.New(
		"spec.hostUsers is false, which this container runtime, or this kernel, cannot do: see playlet doctor")}
}

// UsersOf returns the user namespace of a pod that has a sandbox; nil: the host's.
func (h *Host) UsersOf(ctx context.Context, pod *v1.Pod) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(pod) || h.Users == nil {
		return nil, nil //nolint:nilnil // the host's
	}
	return h.users(ctx, pod, h.Users.Of)
}

func (h *Host) users(ctx context.Context, pod *v1.Pod, find func(context.Context, string) (userns.Range, error)) (
	*runtimeapi.UserNamespace, error) {
	of, err := find(ctx, string(pod.UID))
	if err != nil {
		return nil, err
	}
	return of.Namespace(), nil
}

func ownUsers(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }
