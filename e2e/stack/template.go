package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Template is the configuration that an agent has sent to the runtime for a pod with one container: Floor sends the same for its
// own pods.
type Template struct {
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
}

// Capture reads the configuration sent to the runtime for a running pod. It copies files that were mounted into the container, as
// they are removed with the pod; folders are not copied.
func (s *Stack) Capture(ctx context.Context, podUID string) (*Template, error) {
	containers, err := s.ContainersOf(ctx, podUID)
	if err != nil {
		return nil, err
	}
	if len(containers) != 1 {
		return nil, fmt.Errorf("pod %s has %d containers", podUID, len(containers))
	}
	t := &Template{sandbox: &runtimeapi.PodSandboxConfig{}, container: &runtimeapi.ContainerConfig{}}
	got, err := s.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: containers[0].Id, Verbose: true})
	if err != nil {
		return nil, err
	}
	if err := configOf(got.Info, t.container); err != nil {
		return nil, fmt.Errorf("container %s: %w", containers[0].Id, err)
	}
	podSandbox, err := s.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: containers[0].PodSandboxId,
		Verbose: true})
	if err != nil {
		return nil, err
	}
	if err := configOf(podSandbox.Info, t.sandbox); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", containers[0].PodSandboxId, err)
	}
	return t, t.keepFiles(filepath.Join(s.Dir, "template"))
}

// configOf finds a configuration in containerd's verbose answer.
func configOf(info map[string]string, into proto.Message) error {
	var all struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &all); err != nil {
		return err
	}
	config, err := withBytes(all.Config)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(config, into)
}

// withBytes converts the values of environment variables to the newer CRI's bytes: containerd's version is older, and has text.
func withBytes(config []byte) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, err
	}
	envs, _ := all["envs"].([]any)
	for _, e := range envs {
		if env, ok := e.(map[string]any); ok {
			text, _ := env["value"].(string)
			env["value"] = []byte(text) // which is written as base64
		}
	}
	return json.Marshal(all)
}

func (t *Template) keepFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, m := range t.container.Mounts {
		info, err := os.Stat(m.HostPath)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(m.HostPath)
		if err != nil {
			return err
		}
		m.HostPath = filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(m.HostPath, data, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// apply gives a pod of the floor the content of the template, except its identity.
func (t *Template) apply(p *Pod) *runtimeapi.ContainerConfig {
	own := p.sandbox
	p.sandbox = proto.CloneOf(t.sandbox)
	p.sandbox.Metadata, p.sandbox.Hostname, p.sandbox.LogDirectory, p.sandbox.Labels = own.Metadata, own.Hostname,
		own.LogDirectory, own.Labels
	return proto.CloneOf(t.container)
}
