package sim

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer requires a ready sandbox and a present image. It reserves the name, waits for its delay, and leaves the
// container CREATED. If it is cancelled or fails half-way, it leaves nothing.
func (s *runtimeService) CreateContainer(ctx context.Context,
	req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r := s.r
	c, err := r.reserveContainer(req)
	if err != nil {
		return nil, err
	}
	err = r.pause(ctx)

	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.store.sandboxes[c.sandbox.id] == nil {
		err = errNotFound("failed to find sandbox id %q", c.sandbox.id)
	}
	if err != nil {
		delete(r.store.names, c.name)
		return nil, err
	}
	c.created = r.now()
	r.store.addContainer(c)
	r.touchLocked(c)
	r.emitLocked(c.target, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (r *Runtime) reserveContainer(req *runtimeapi.CreateContainerRequest) (*container, error) {
	config, sandboxConfig := req.GetConfig(), req.GetSandboxConfig()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := containerTarget(req)
	name := strings.Join([]string{
		t.Container, t.PodName, t.PodNamespace, t.PodUID, strconv.FormatUint(uint64(t.Attempt), 10),
	}, "_")
	sb := r.store.sandboxes[req.GetPodSandboxId()]
	if err := r.checkCreateLocked(sb, req.GetPodSandboxId(), name); err != nil {
		return nil, err
	}
	switch {
	case config.GetMetadata() == nil:
		return nil, errUnknown("container config must include metadata")
	case sandboxConfig.GetMetadata() == nil:
		return nil, errUnknown("pod sandbox config must include metadata")
	}
	t.ID = r.newIDLocked()
	if holder, ok := r.store.reserve(name, t.ID); !ok {
		hint := "; check if another CreateContainer request is in progress"
		if r.opts.Old {
			hint = ""
		}
		return nil, errUnknown("failed to reserve container name %q%s: name %q is reserved for %q", name, hint, name, holder)
	}
	image := r.images.find(config.GetImage().GetImage())
	if image == nil {
		delete(r.store.names, name)
		return nil, errNotFound("failed to resolve image %q", config.GetImage().GetImage())
	}
	r.store.targets[t.ID] = t
	c := &container{
		id: t.ID, name: name, sandbox: sb, target: t, config: config, image: image.id,
		state:   runtimeapi.ContainerState_CONTAINER_CREATED,
		stopped: make(chan struct{}), log: &logFile{},
		resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
	}
	if sandboxConfig.GetLogDirectory() != "" && config.GetLogPath() != "" {
		c.logPath = filepath.Join(sandboxConfig.GetLogDirectory(), config.GetLogPath())
	}
	return c, nil
}

// checkCreateLocked rejects a sandbox that is not ready. It is a violation if the caller stopped the sandbox itself; a caller
// that lost it by accident learns this from the first rejection.
func (r *Runtime) checkCreateLocked(sb *sandbox, id, name string) error {
	if sb == nil {
		r.violateLocked("create-in-dead-sandbox", "CreateContainer of %s in sandbox %q, which does not exist", name, id)
		return errNotFound("failed to find sandbox id %q", id)
	}
	if sb.ready {
		return nil
	}
	sb.refused[name]++
	if sb.stopAsked || sb.refused[name] > 1 {
		r.violateLocked("create-in-dead-sandbox", "CreateContainer of %s in %s, refused %d times", name, sb.name,
			sb.refused[name])
	}
	return errUnknown("sandbox container %q is not running", sb.id)
}
