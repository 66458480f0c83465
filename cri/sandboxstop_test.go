package cri

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxRuntime is a runtime with one sandbox, "s".
type sandboxRuntime struct {
	mu      sync.Mutex
	running []string
	stopped bool
	during  func() // called while the sandbox is being stopped
}

func (r *sandboxRuntime) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []*runtimeapi.Container{
		{Id: "exited", PodSandboxId: "s", State: runtimeapi.ContainerState_CONTAINER_EXITED},
		{Id: "other", PodSandboxId: "another", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}
	for _, id := range r.running {
		list = append(list, &runtimeapi.Container{Id: id, PodSandboxId: "s", State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	}
	return list, nil
}

func (r *sandboxRuntime) StopPodSandbox(context.Context, string) error {
	if r.during != nil {
		r.during()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	return nil
}

func TestStopSandbox_RefusesOverRunningContainers(t *testing.T) {
	for name, test := range map[string]struct {
		running []string
		asked   map[string]bool
		want    []string // the containers of the refusal
	}{
		"no container runs":            {},
		"a container runs":             {running: []string{"a"}, want: []string{"a"}},
		"the container was asked":      {running: []string{"a"}, asked: map[string]bool{"a": true}},
		"one of two containers was":    {running: []string{"a", "b"}, asked: map[string]bool{"a": true}, want: []string{"b"}},
		"another container was asked":  {running: []string{"a"}, asked: map[string]bool{"other": true}, want: []string{"a"}},
		"the asked container has gone": {asked: map[string]bool{"a": true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &sandboxRuntime{running: test.running}
			err := NewOperations().StopSandbox(t.Context(), r, "u", "s", time.Minute, test.asked)
			if len(test.want) == 0 {
				if err != nil || !r.stopped {
					t.Fatalf("got error %v, stopped %v, want a stop", err, r.stopped)
				}
				return
			}
			refusal, ok := errors.AsType[*RunningError](err)
			if !ok || !slices.Equal(refusal.Containers, test.want) || r.stopped {
				t.Errorf("got error %v, stopped %v, want a refusal over %v", err, r.stopped, test.want)
			}
		})
	}
}

// A start in progress counts although its container does not run yet.
func TestStopSandbox_WaitsForStartsInProgress(t *testing.T) {
	o, r := NewOperations(), &sandboxRuntime{}
	entered, leave := make(chan struct{}), make(chan struct{})
	started := make(chan error, 1)
	go func() {
		_, err := o.Do(t.Context(), StartPrefix("u")+"container/a/0", time.Minute, func(context.Context) (any, error) {
			if err := o.MayStart("u", "s"); err != nil {
				return nil, err
			}
			close(entered)
			<-leave
			r.mu.Lock()
			defer r.mu.Unlock()
			r.running = append(r.running, "a")
			return nil, nil
		})
		started <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- o.StopSandbox(t.Context(), r, "u", "s", time.Minute, nil) }()
	waitFor(t, func() bool { return o.MayStart("u", "s") != nil || len(stopped) > 0 })
	close(leave)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*RunningError](<-stopped); !ok || r.stopped {
		t.Errorf("got stopped %v, want a refusal over the container that started meanwhile", r.stopped)
	}
}

func TestMayStart_RefusesWhileTheSandboxStops(t *testing.T) {
	o := NewOperations()
	r := &sandboxRuntime{}
	r.during = func() {
		if err := o.MayStart("u", "s"); !errors.Is(err, ErrSandboxStops) {
			t.Errorf("got %v, want ErrSandboxStops", err)
		}
		if err := o.MayStart("u", "another"); err != nil {
			t.Errorf("another sandbox: %v", err)
		}
	}
	if err := o.StopSandbox(t.Context(), r, "u", "s", time.Minute, nil); err != nil || !r.stopped {
		t.Fatalf("got error %v, stopped %v", err, r.stopped)
	}
	if err := o.MayStart("u", "s"); err != nil {
		t.Errorf("after the stop: %v", err)
	}
}

// StopPodSandbox kills running containers, so actors only call it through StopSandbox.
func TestTree_ActorsStopSandboxesThroughStopSandbox(t *testing.T) {
	read := 0
	err := filepath.WalkDir("../actors", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		read++
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), ".StopPodSandbox(") {
			t.Errorf("%s calls StopPodSandbox: call cri.Operations.StopSandbox", path)
		}
		return err
	})
	if err != nil || read < 100 {
		t.Errorf("read %d files of actors: %v", read, err)
	}
}
