package ender

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri/facts"
)

// stopAll stops all containers of the pod side by side, with the grace that is left until the time, and then its sandboxes.
// Starts that are under way are awaited first. A stop to the same time that is under way is joined; the runtime goes by the
// shortest.
func stopAll(ctx context.Context, h *host.Host, uid string, until time.Time) error {
	key := uid + "/end/" + strconv.FormatInt(until.UnixMilli(), 10)
	_, err := h.Ops.Do(ctx, key, max(time.Until(until), 0)+workTimeout-10*time.Second, func(ctx context.Context) (any, error) {
		return nil, stopNow(ctx, h, uid, until)
	})
	return host.Joined(err)
}

func stopNow(ctx context.Context, h *host.Host, uid string, until time.Time) error {
	settle, cancel := context.WithTimeout(ctx, h.Reap(3))
	err := h.Ops.Settle(settle, uid+"/start/")
	cancel()
	if err != nil {
		return err
	}
	containers, err := h.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	errs := make([]error, len(containers))
	var wg sync.WaitGroup
	for i, c := range containers {
		if s := c.GetState(); s != runtimeapi.ContainerState_CONTAINER_RUNNING &&
			s != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			continue
		}
		wg.Go(func() { errs[i] = stopOne(ctx, h, c.GetId(), until) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	sandboxes, err := h.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	errs = nil
	for _, s := range sandboxes {
		errs = append(errs, host.Ignore(h.CRI.StopPodSandbox(ctx, s.GetId())))
	}
	return errors.Join(errs...)
}

// stopOne stops one container. A panic, which would end the process here, is an error of this container.
func stopOne(ctx context.Context, h *host.Host, id string, until time.Time) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while stopping container %s: %v", id, r)
		}
	}()
	return host.Ignore(h.CRI.StopContainer(ctx, id, max(time.Until(until), time.Second)))
}
