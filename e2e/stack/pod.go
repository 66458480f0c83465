package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is a pod of one container, made of raw CRI calls.
type Pod struct {
	UID, Name              string
	SandboxID, ContainerID string
	IP                     string // set by RunPod

	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig // from a template; the identity of each container is set later
	attempt   uint32                      // of the container
}

// RunPod creates a sandbox and starts one container in it, of a present image, with args for its entry point. Stop removes the
// remains of a failed one.
func (s *Stack) RunPod(ctx context.Context, name, image string, args ...string) (*Pod, error) {
	p, err := s.newPod(name)
	if err != nil {
		return nil, err
	}
	if err := s.startPod(ctx, p, image, args); err != nil {
		return p, err
	}
	p.IP, err = s.PodIP(ctx, p.SandboxID)
	return p, err
}

// newPod does the work on disk that comes before the first call.
func (s *Stack) newPod(name string) (*Pod, error) {
	uid := rand.Text()
	logs := filepath.Join(s.Dir, "logs", "default_"+name+"_"+uid)
	if err := os.MkdirAll(filepath.Join(logs, "main"), 0o755); err != nil {
		return nil, err
	}
	return &Pod{UID: uid, Name: name, sandbox: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: uid, Namespace: "default"},
		Hostname:     name,
		LogDirectory: logs,
		Labels: map[string]string{
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", UIDLabel: uid,
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}}, nil
}

// startPod makes the calls that any agent needs for a pod.
func (s *Stack) startPod(ctx context.Context, p *Pod, image string, args []string) error {
	sandbox, err := s.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		return fmt.Errorf("RunPodSandbox: %w", err)
	}
	p.SandboxID = sandbox.PodSandboxId
	if err := s.createContainer(ctx, p, image, args); err != nil {
		return err
	}
	_, err = s.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.ContainerID})
	if err != nil {
		return fmt.Errorf("StartContainer: %w", err)
	}
	return nil
}

// createContainer makes the container in the sandbox that is there.
func (s *Stack) createContainer(ctx context.Context, p *Pod, image string, args []string) error {
	config := p.container
	if config == nil {
		config = &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: image}, Args: args,
			Linux: &runtimeapi.LinuxContainerConfig{}}
	}
	config.Metadata = &runtimeapi.ContainerMetadata{Name: "main", Attempt: p.attempt}
	config.LogPath = "main/0.log"
	config.Labels = map[string]string{
		"io.kubernetes.container.name": "main", "io.kubernetes.pod.name": p.Name,
		"io.kubernetes.pod.namespace": "default", UIDLabel: p.UID,
	}
	container, err := s.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.SandboxID, Config: config, SandboxConfig: p.sandbox,
	})
	if err != nil {
		return fmt.Errorf("CreateContainer: %w", err)
	}
	p.ContainerID = container.ContainerId
	return nil
}

// StopPod stops the container with a grace period in seconds, removes it, and removes the sandbox.
func (s *Stack) StopPod(ctx context.Context, p *Pod, grace int64) error {
	_, err := s.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.ContainerID, Timeout: grace})
	if err != nil {
		return fmt.Errorf("StopContainer: %w", err)
	}
	_, err = s.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: p.ContainerID})
	if err != nil {
		return errors.Join(fmt.Errorf("RemoveContainer: %w", err), s.RemoveSandbox(ctx, p.SandboxID))
	}
	return s.RemoveSandbox(ctx, p.SandboxID)
}
