package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
)

// waiters measures many pods that wait for one image beside a single one: all have their sandboxes, and the registry holds the
// image back until then. The time is from there to the start of their containers: the first one's includes the pull, the last
// one's also the starts of the others.
func (b *bench) waiters(ctx context.Context) error {
	var first, last [2][]time.Duration
	most := 0
	for round := range *rounds {
		for i, n := range []int{1, *crowd} {
			name := fmt.Sprintf("waited-%d-%d", n, round)
			if err := b.withAgent(ctx, func() error {
				took, pulls, err := b.wait(ctx, name, n)
				if err != nil {
					return err
				}
				first[i] = append(first[i], quantile(took, 0))
				last[i] = append(last[i], quantile(took, 1))
				most = max(most, pulls)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	fmt.Printf("waiting for one pull:        1 pod %s   %d pods first %s last %s   ratio %.2f (first), %.2f (last)   pulls each: %d\n",
		spread(first[0]), *crowd, quantile(first[1], 0.5).Round(time.Millisecond), quantile(last[1], 0.5).Round(time.Millisecond),
		ratio(first[1], first[0], 0.5), ratio(last[1], last[0], 0.5), most)
	return nil
}

// wait has n pods wait for one image, and gives how long after its release each of them started, and how often the image
// was pulled.
func (b *bench) wait(ctx context.Context, name string, n int) (took []time.Duration, pulls int, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	image, err := devimages.Image(devimages.Hello, func(c *v1.Config) { c.Labels["bench"] = name })
	if err != nil {
		return nil, 0, err
	}
	if err := b.stack.Registry.Push(name, image); err != nil {
		return nil, 0, err
	}
	release := make(chan struct{})
	b.stack.Registry.Intercept(func(r *http.Request) devimages.Fault {
		if !strings.HasPrefix(r.URL.Path, "/v2/"+name+"/blobs/") {
			return devimages.Fault{}
		}
		return devimages.Fault{Until: release}
	})
	defer b.stack.Registry.Intercept(nil)
	for i := range n {
		pod := fmt.Sprintf("%s-%d", name, i)
		if err := b.agent.Write(pod+".yaml", manifest(pod, b.stack.Registry.Ref(name))); err != nil {
			return nil, 0, err
		}
	}
	if err := b.prepared(ctx, n); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	close(release)
	for i := range n {
		at, err := b.await(ctx, fmt.Sprintf("%s-%d-node0", name, i))
		if err != nil {
			return nil, 0, fmt.Errorf("%s-%d: %w\n%s", name, i, err, b.agent.Log())
		}
		took = append(took, at.Sub(began))
	}
	for i := range n {
		if err := b.agent.Remove(fmt.Sprintf("%s-%d.yaml", name, i)); err != nil {
			return nil, 0, err
		}
	}
	return took, b.stack.Registry.Pulls(name), b.gone(ctx)
}

// prepared waits until n sandboxes are ready.
func (b *bench) prepared(ctx context.Context, n int) error {
	for ctx.Err() == nil {
		list, err := b.stack.CRI().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		}})
		if err == nil && len(list.Items) == n {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the pods did not get their sandboxes in time")
}
