//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
)

var recordErrors = flag.Bool("record-errors", false, "rewrite cri/testdata with the errors of the runtimes")

// failure is an error of a runtime, with the code of its cause. TestCallError_CauseOfRecordedErrors of package cri reads the
// records.
type failure struct {
	Cause            string
	Name             string `json:",omitempty"`
	Call, Code, Text string
}

// variable are the parts of an error that differ between runs, and the words that replace them.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "ID"},
	{regexp.MustCompile(`\b(\d+\.\d+\.\d+\.\d+):[1-9]\d{2,}`), "$1:PORT"},
	{regexp.MustCompile(`(/[^/\s":]+)+/(cause-tests)`), "/DIR/$2"},
}

// TestErrorsOfRuntimes compares the errors of real runtimes with the records that the classes of causes are tested with.
// go test -tags e2e -run TestErrorsOfRuntimes ./e2e -record-errors rewrites them.
func TestErrorsOfRuntimes(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		f := &failures{s: s}
		f.pulls(t)
		f.sandboxes(t)
		f.starts(t)
		text, err := json.MarshalIndent(f.all, "", "  ")
		must(t, err)
		got := strings.ReplaceAll(string(text), s.Dir, "/DIR") + "\n"
		file := filepath.Join("..", "cri", "testdata", "errors-"+string(s.Kind())+".json")
		if *recordErrors {
			must(t, os.WriteFile(file, []byte(got), 0o644))
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("the errors of %s are not those recorded: %v\n%s", s.Kind(), err, got)
		}
	})
}

type failures struct {
	s   *stack.Stack
	all []failure
}

// add records an error of a call.
func (f *failures) add(t *testing.T, cause string, name, call string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s succeeded, want an error for %s", call, cause)
		return
	}
	got := status.Convert(err)
	one := failure{Cause: cause, Name: name, Call: call, Code: got.Code().String(), Text: got.Message()}
	for _, v := range variable {
		one.Text = v.pattern.ReplaceAllString(one.Text, v.with)
	}
	f.all = append(f.all, one)
}

func (f *failures) pulls(t *testing.T) {
	at := registries(t, f.s)
	f.s.Registry.Intercept(func(r *http.Request) devimages.Fault {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/denied/"):
			return devimages.Fault{Status: http.StatusUnauthorized}
		case strings.HasPrefix(r.URL.Path, "/v2/busy/"):
			return devimages.Fault{Status: http.StatusTooManyRequests}
		}
		return devimages.Fault{}
	})
	for _, c := range []struct {
		cause string
		image string
	}{
		{"ImageNotFound", f.s.Registry.Ref("missing")},
		{"Unauthorized", at.denied},
		{"TooManyRequests", f.s.Registry.Ref("busy")},
		{"UntrustedCertificate", at.tls},
		{"PlainHTTP", at.plain},
		{"RegistryUnreachable", "127.0.0.1:1/none:1"},
	} {
		_, err := f.s.Pull(t.Context(), c.image)
		f.add(t, c.cause, "", "PullImage", err)
	}
}

// config is a sandbox of the host's network, so that its network cannot fail.
func (f *failures) config(name string) *runtimeapi.PodSandboxConfig {
	host := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: host}},
	}
}

func (f *failures) sandboxes(t *testing.T) {
	_, err := f.s.CRI().RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: f.config("handler"), RuntimeHandler: "gvisor"})
	f.add(t, "HandlerAbsent", "gvisor", "RunPodSandbox", err)
}

func (f *failures) starts(t *testing.T) {
	dir := filepath.Join(isolate.Dir(), "cause-tests")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644))
	_, err := f.s.Pull(t.Context(), f.s.HelloImage())
	must(t, err)
	config := f.config("starts")
	sandbox, err := f.s.CRI().RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	must(t, err)
	defer func() { must(t, f.s.RemoveSandbox(t.Context(), sandbox.PodSandboxId)) }()
	ofFolder := "CommandIsFolder"
	if f.s.Kind() == stack.Containerd1 {
		ofFolder = "CommandRefused" // this runc does not look at the type
	}
	folder := &runtimeapi.Mount{HostPath: dir, ContainerPath: "/data", Readonly: true}
	for i, c := range []struct {
		cause  string
		name   string
		config *runtimeapi.ContainerConfig
	}{
		{"CommandAbsent", "nope", &runtimeapi.ContainerConfig{Command: []string{"nope"}}},
		{"CommandAbsent", "/no/program", &runtimeapi.ContainerConfig{Command: []string{"/no/program"}}},
		{"CommandRefused", "/data/plain", &runtimeapi.ContainerConfig{Command: []string{"/data/plain"}}},
		{ofFolder, "/data", &runtimeapi.ContainerConfig{Command: []string{"/data"}}},
		{"WorkingDirRefused", "/data/plain", &runtimeapi.ContainerConfig{WorkingDir: "/data/plain"}},
		{"MountPointAbsent", "/data/none", &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{
			{HostPath: dir, ContainerPath: "/data/none"}}}},
	} {
		c.config.Metadata = &runtimeapi.ContainerMetadata{Name: "c", Attempt: uint32(i)}
		c.config.Image = &runtimeapi.ImageSpec{Image: f.s.HelloImage()}
		c.config.Mounts = append([]*runtimeapi.Mount{folder}, c.config.Mounts...)
		c.config.Linux = &runtimeapi.LinuxContainerConfig{}
		call := "CreateContainer"
		made, err := f.s.CRI().CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config, Config: c.config})
		if err == nil {
			call = "StartContainer"
			_, err = f.s.CRI().StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId})
		}
		f.add(t, c.cause, c.name, call, err)
	}
}
