package stack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// PodTime is when a pod was begun and when its container was started, both since the call of Floor.
type PodTime struct {
	Begun, Started time.Duration
}

// Own is how long the pod itself took, without the wait for its turn.
func (p PodTime) Own() time.Duration { return p.Started - p.Begun }

// Floor makes the calls that any agent must make for n pods (RunPodSandbox, CreateContainer, StartContainer, with the image
// present), without an agent, with at most parallel pods in progress. No agent can be quicker with the same parallelism. The
// content of the calls comes from a template; without one, it is the minimum of a pod. It returns a time per pod, in the order of
// their beginning, and the time until the last container was started. The pods are removed, outside the measurement. A pod to
// warm up the runtime is run before it.
func (s *Stack) Floor(ctx context.Context, like *Template, n, parallel int) (perPod []PodTime, total time.Duration, err error) {
	if n < 1 || parallel < 1 {
		return nil, 0, fmt.Errorf("%d pods, %d at a time", n, parallel)
	}
	image := s.HelloImage()
	if _, err := s.Pull(ctx, image); err != nil {
		return nil, 0, err
	}
	warm, err := s.RunPod(ctx, "warm", image)
	if err == nil {
		err = s.RemoveSandbox(ctx, warm.SandboxID)
	}
	if err != nil {
		return nil, 0, err
	}
	pods := make([]*Pod, n)
	for i := range pods {
		if pods[i], err = s.newPod(fmt.Sprintf("floor-%d", i)); err != nil {
			return nil, 0, err
		}
		if like != nil {
			pods[i].container = like.apply(pods[i])
		}
	}
	perPod, err = s.timePods(ctx, pods, image, parallel)
	for _, p := range perPod {
		total = max(total, p.Started)
	}
	return perPod, total, errors.Join(err, s.removeAll(ctx, pods, parallel))
}

func (s *Stack) timePods(ctx context.Context, pods []*Pod, image string, parallel int) ([]PodTime, error) {
	times := make([]PodTime, len(pods))
	begun := time.Now()
	err := inParallel(len(pods), parallel, func(i int) error {
		times[i].Begun = time.Since(begun)
		err := s.startPod(ctx, pods[i], image, nil)
		times[i].Started = time.Since(begun)
		return err
	})
	return times, err
}

func (s *Stack) removeAll(ctx context.Context, pods []*Pod, parallel int) error {
	return inParallel(len(pods), parallel, func(i int) error {
		if pods[i].SandboxID == "" {
			return nil
		}
		return s.RemoveSandbox(ctx, pods[i].SandboxID)
	})
}

// inParallel calls work for 0 to n-1 in order, no more than parallel at a time.
func inParallel(n, parallel int, work func(i int) error) error {
	errs := make([]error, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, parallel) {
		workers.Go(func() {
			for i := range next {
				errs[i] = work(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}
