package dev

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
	"github.com/playlet-dev/playlet/cri"
)

const (
	// readyTime bounds the start of containerd: a slow disk takes some seconds.
	readyTime = 2 * time.Minute
	// stopTime bounds the removal of all pods. Pods that take longer end with their namespaces.
	stopTime = 30 * time.Second
	// longestGrace bounds the grace period of a container, since the user waits after Ctrl-C.
	longestGrace = 5 * time.Second
)

// awaitRuntime waits until containerd reports itself and its network ready, or has ended.
func awaitRuntime(ctx context.Context, client *cri.Client, s *supervisedProgram, waiting func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := process.Await(ctx, s.failed(), func(ctx context.Context) error {
		err := runtimeReady(ctx, client)
		if err != nil && !cri.IsUnavailable(err) {
			waiting(err.Error())
		}
		return err
	})
	if errors.Is(err, process.ErrEnded) {
		return s.err()
	}
	return err
}

func runtimeReady(ctx context.Context, client *cri.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := client.Status(ctx, false)
	if err != nil {
		return err
	}
	return containerd.Ready(status)
}

// removePods stops and removes every pod of the runtime, all at once. A runtime that does not answer is no error: its
// pods end with their namespaces.
func removePods(client *cri.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	containers, err := client.ListContainers(ctx, nil)
	if cri.IsUnavailable(err) {
		return nil
	}
	sandboxes, err2 := client.ListPodSandbox(ctx, nil)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	all := map[string][]*runtimeapi.Container{}
	for _, c := range containers {
		all[c.PodSandboxId] = append(all[c.PodSandboxId], c)
	}
	var wait sync.WaitGroup
	errs := make([]error, len(sandboxes))
	for i, s := range sandboxes {
		wait.Go(func() { errs[i] = removePod(ctx, client, s.Id, all[s.Id]) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func removePod(ctx context.Context, client *cri.Client, sandbox string, containers []*runtimeapi.Container) error {
	var wait sync.WaitGroup
	errs := make([]error, len(containers))
	for i, c := range containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			wait.Go(func() { errs[i] = client.StopContainer(ctx, c.Id, grace(c.Annotations)) })
		}
	}
	wait.Wait()
	errs = append(errs, client.StopPodSandbox(ctx, sandbox), client.RemovePodSandbox(ctx, sandbox))
	return errors.Join(errs...)
}

// grace reads the grace period of the container's pod, in seconds, from the kubelet's annotation.
func grace(annotations map[string]string) time.Duration {
	seconds, err := strconv.ParseInt(annotations["io.kubernetes.pod.terminationGracePeriod"], 10, 32)
	if err != nil {
		return longestGrace
	}
	return min(time.Duration(seconds)*time.Second, longestGrace)
}
