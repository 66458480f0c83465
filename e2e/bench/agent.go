package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// waitLimit bounds every wait; it is reached only when something is broken.
const waitLimit = 3 * time.Minute

// bench is the measured agent, with a watch of the runtime's events.
type bench struct {
	stack  *stack.Stack
	agent  *stack.Agent
	whenUp func() error // called when all pods of a measurement run
	like   *stack.Template

	mu      sync.Mutex
	started map[string]time.Time // by name of the pod, when the word of its container's start came
	changed chan struct{}
}

// watch subscribes to the runtime's events: they are the clock's end for every pod.
func (b *bench) watch(ctx context.Context) error {
	b.started, b.changed = map[string]time.Time{}, make(chan struct{}, 1)
	events, err := b.stack.CRI().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	go func() {
		for {
			e, err := events.Recv()
			if err != nil {
				return
			}
			now := time.Now()
			// A sandbox's own start carries its own ID.
			if e.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT ||
				e.ContainerId == e.PodSandboxStatus.GetId() {
				continue
			}
			b.mu.Lock()
			b.started[e.PodSandboxStatus.GetMetadata().GetName()] = now
			b.mu.Unlock()
			select {
			case b.changed <- struct{}{}:
			default:
			}
		}
	}()
	return nil
}

// withAgent runs a measurement with a running agent. The agent does not run while the floor is measured: it would end the floor's
// pods, which no source of it desires.
func (b *bench) withAgent(ctx context.Context, measure func() error) error {
	if err := b.agent.Start(); err != nil {
		return err
	}
	for {
		if code, _, err := b.agent.Healthz(ctx, ""); err == nil && code == 200 {
			break
		}
		if !b.agent.Running() || ctx.Err() != nil {
			return fmt.Errorf("the agent did not become healthy:\n%s", b.agent.Log())
		}
		time.Sleep(10 * time.Millisecond)
	}
	err := measure()
	_, termErr := b.agent.Term()
	return errors.Join(err, termErr)
}

// pods has the agent run n pods and gives the time each took; then they are taken away again.
func (b *bench) pods(ctx context.Context, name string, n int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	began := time.Now()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", name, i)
		if err := b.agent.Write(names[i]+".yaml", manifest(names[i], b.stack.HelloImage())); err != nil {
			return nil, err
		}
	}
	took := make([]time.Duration, 0, n)
	for _, name := range names {
		at, err := b.await(ctx, name+"-node0")
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, b.agent.Log())
		}
		took = append(took, at.Sub(began))
	}
	if b.whenUp != nil {
		if err := b.whenUp(); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if err := b.agent.Remove(name + ".yaml"); err != nil {
			return nil, err
		}
	}
	return took, b.gone(ctx)
}

func (b *bench) await(ctx context.Context, pod string) (time.Time, error) {
	for {
		b.mu.Lock()
		at, ok := b.started[pod]
		delete(b.started, pod)
		b.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// gone waits until the runtime has nothing left.
func (b *bench) gone(ctx context.Context) error {
	for ctx.Err() == nil {
		list, err := b.stack.Sandboxes(ctx)
		if err == nil && len(list) == 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("pods were not removed in time")
}

func manifest(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n"+
		"  - name: hello\n    image: %s\n    imagePullPolicy: IfNotPresent\n", name, image)
}

// figures are the resources used by a process: MiB and seconds.
type figures struct{ rss, anon, cpu float64 }

func usage(pid int) (figures, error) {
	var f figures
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			f.rss = kib / 1024
		case "RssAnon:":
			f.anon = kib / 1024
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return f, err
	}
	after := string(stat)[strings.LastIndexByte(string(stat), ')')+2:]
	fields := strings.Fields(after) // from the state on, which is the third of proc(5)'s fields
	for _, i := range []int{11, 12} {
		ticks, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return f, err
		}
		f.cpu += ticks / 100
	}
	return f, nil
}
