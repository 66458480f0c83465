package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/remains"
	"github.com/playlet-dev/playlet/cri/translate"
)

// RemovePod removes all that the runtime has of the pod, as the runtime itself lists it, and the pod's log folder. It joins a
// removal that is under way. A panic in that is one of the caller.
func (h *Host) RemovePod(ctx context.Context, pod *v1.Pod) error {
	_, err := h.Ops.Do(ctx, string(pod.UID)+"/remove", h.Reap(8), func(ctx context.Context) (any, error) {
		uid := string(pod.UID)
		left := removeContainers(ctx, h, uid)
		err := removeSandboxes(ctx, h, uid)
		if left != nil && err == nil { // what could not be removed alone may have gone with its sandbox
			left = removeContainers(ctx, h, uid)
		}
		return nil, errors.Join(left, err, removeLogs(ctx, h, pod))
	})
	return Joined(err)
}

func removeContainers(ctx context.Context, h *Host, uid string) error {
	list, err := h.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			// Nobody stopped it: it came up after the pod had ended. It gets a signal before it is removed.
			errs = append(errs, Ignore(h.CRI.StopContainer(ctx, c.GetId(), 0)))
		}
		errs = append(errs, Ignore(h.CRI.RemoveContainer(ctx, c.GetId())))
	}
	return errors.Join(errs...)
}

func removeSandboxes(ctx context.Context, h *Host, uid string) error {
	list, err := h.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		err := Ignore(h.CRI.StopPodSandbox(ctx, s.GetId()))
		if err == nil {
			err = remains.RemoveSandbox(ctx, s.GetId(), h.CRI.RemovePodSandbox)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func removeLogs(ctx context.Context, h *Host, pod *v1.Pod) error {
	dir := translate.PodLogDir(h.Node.PodLogsDir, pod)
	root, err := safepath.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = safepath.RemoveAllOneFilesystem(ctx, root, filepath.Base(dir))
	return errors.Join(err, root.Close())
}
