package stack

import (
	"encoding/json"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Dial connects to the runtime's API on a socket.
func Dial(socket string) (*CRI, error) { return dial(socket) }

// Save writes the template to a file, for LoadTemplate in another process.
func (t *Template) Save(path string) error {
	var parts []json.RawMessage
	for _, m := range []proto.Message{t.sandbox, t.container} {
		text, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		parts = append(parts, text)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// LoadTemplate reads a template that Save has written.
func LoadTemplate(path string) (*Template, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &Template{sandbox: &runtimeapi.PodSandboxConfig{}, container: &runtimeapi.ContainerConfig{}}
	parts := [2]json.RawMessage{}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(parts[0], t.sandbox); err != nil {
		return nil, err
	}
	return t, protojson.Unmarshal(parts[1], t.container)
}

// Requests returns the template's configurations for one pod, with the log directory of its own.
func (t *Template) Requests(uid, namespace, name, logs string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {
	sandbox, container := proto.CloneOf(t.sandbox), proto.CloneOf(t.container)
	labels := map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": namespace, UIDLabel: uid}
	sandbox.Metadata = &runtimeapi.PodSandboxMetadata{Name: name, Uid: uid, Namespace: namespace}
	sandbox.Hostname, sandbox.LogDirectory, sandbox.Labels = name, logs, labels
	container.Metadata, container.LogPath, container.Labels = &runtimeapi.ContainerMetadata{Name: "main"}, "0.log", labels
	return sandbox, container
}
