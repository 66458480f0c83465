package sim

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Snapshot is the state of the runtime at one moment. It is immutable and shared.
type Snapshot struct {
	// Version grows with every change of the state.
	Version uint64
	// Up reports whether the socket is served.
	Up bool
	// Sandboxes and Containers are in order of creation.
	Sandboxes  []*SandboxState
	Containers []*ContainerState
	// Images lists the present references, sorted: tags and digests.
	Images []string
	// EventStreams is the number of open GetContainerEvents calls.
	EventStreams int
	// Names is the number of reserved names: of sandboxes and containers, and of those being created.
	Names int
}

// SandboxState is one sandbox in a Snapshot.
type SandboxState struct {
	ID, UID, Name, Namespace string
	Attempt                  uint32
	Ready                    bool
	IP                       string // "" in the host's network, and after a stop
	Handler                  string // the runtime's; "" is the default one
	CreatedAt                time.Time
}

// ContainerState is one container in a Snapshot.
type ContainerState struct {
	ID, SandboxID, PodUID, PodName, PodNamespace, Name string
	Attempt                                            uint32
	Image                                              string // as named in the request
	State                                              runtimeapi.ContainerState
	ExitCode                                           int32
	Reason                                             string
	CreatedAt, StartedAt, FinishedAt                   time.Time // zero until it happens
	// Signals counts the stop signals sent to the process, without SIGKILL.
	Signals int
	// Config is the configuration in the request.
	Config *runtimeapi.ContainerConfig
	// Resources are the current ones.
	Resources *runtimeapi.LinuxContainerResources
}

// Running reports whether the container runs.
func (c *ContainerState) Running() bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// Ready counts the ready sandboxes.
func (s Snapshot) Ready() (n int) {
	for _, sb := range s.Sandboxes {
		if sb.Ready {
			n++
		}
	}
	return n
}

// Running counts the running containers.
func (s Snapshot) Running() (n int) {
	for _, c := range s.Containers {
		if c.Running() {
			n++
		}
	}
	return n
}

// Sandbox returns the newest sandbox of the named pod, or nil.
func (s Snapshot) Sandbox(pod string) *SandboxState {
	for i := len(s.Sandboxes) - 1; i >= 0; i-- {
		if s.Sandboxes[i].Name == pod {
			return s.Sandboxes[i]
		}
	}
	return nil
}

// Container returns the newest container with that pod and container name, or nil.
func (s Snapshot) Container(pod, name string) *ContainerState {
	for i := len(s.Containers) - 1; i >= 0; i-- {
		if c := s.Containers[i]; c.PodName == pod && c.Name == name {
			return c
		}
	}
	return nil
}

// Snapshot returns the current state. It costs a pointer for every object, and a copy for those changed since the last one.
func (r *Runtime) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshotLocked()
}

func (r *Runtime) snapshotLocked() Snapshot {
	s := Snapshot{
		Version:    r.version,
		Up:         r.serving,
		Sandboxes:  make([]*SandboxState, len(r.store.sandboxOrder)),
		Containers: make([]*ContainerState, len(r.store.containerOrder)),
		Images:     r.images.refs(),

		EventStreams: len(r.events.streams),
		Names:        len(r.store.names),
	}
	for i, sb := range r.store.sandboxOrder {
		s.Sandboxes[i] = sb.snapshot()
	}
	for i, c := range r.store.containerOrder {
		s.Containers[i] = c.snapshot()
	}
	return s
}

// WaitFor returns once ok is true of the state, or with ctx's error. It checks the current state and after changes; changes in
// quick succession may be seen as one, so ok should not wait for a passing state.
func (r *Runtime) WaitFor(ctx context.Context, ok func(Snapshot) bool) error {
	for {
		r.mu.Lock()
		s, changed := r.snapshotLocked(), r.changed.wait()
		r.mu.Unlock()
		if ok(s) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sandbox) snapshot() *SandboxState {
	if s.view == nil {
		m := s.config.GetMetadata()
		s.view = &SandboxState{
			ID: s.id, UID: m.GetUid(), Name: m.GetName(), Namespace: m.GetNamespace(), Attempt: m.GetAttempt(),
			Ready: s.ready, IP: s.ip, Handler: s.handler, CreatedAt: s.created,
		}
	}
	return s.view
}

func (c *container) snapshot() *ContainerState {
	if c.view == nil {
		c.view = &ContainerState{
			ID: c.id, SandboxID: c.sandbox.id,
			PodUID: c.target.PodUID, PodName: c.target.PodName, PodNamespace: c.target.PodNamespace,
			Name: c.target.Container, Attempt: c.target.Attempt, Image: c.target.Image,
			State: c.state, ExitCode: c.exitCode, Reason: c.reasonShown(),
			CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished,
			Signals: c.signals, Config: c.config, Resources: c.resources.GetLinux(),
		}
	}
	return c.view
}

// touchSandboxLocked records a change of a sandbox.
func (r *Runtime) touchSandboxLocked(s *sandbox) {
	s.view = nil
	r.changedLocked()
}

// touchLocked records a change of a container.
func (r *Runtime) touchLocked(c *container) {
	c.view = nil
	r.changedLocked()
}
