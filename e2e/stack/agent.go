package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/e2e/daemon"
	"github.com/playlet-dev/playlet/e2e/isolate"
)

// Agent is the agent's binary over this stack's runtime, with directories, ports and an admin socket of its own. It can
// be ended and started again over the same state.
type Agent struct {
	// Name distinguishes agents of one stack; the first is a1.
	Name string
	// RootDir, ManifestDir and PodLogsDir are its directories; AdminSocket is for `playlet pods`.
	RootDir, ManifestDir, PodLogsDir, AdminSocket string
	// LogLinksDir has the links to the containers' logs.
	LogLinksDir string
	// Config is the KubeletConfiguration, to be changed before Start. Each Start writes it again.
	Config map[string]any
	// Args are added to the command line with each Start.
	Args []string
	// Env is added to its environment with each Start, as "NAME=value".
	Env []string
	// Binary, unless empty, is run in place of the agent that was built, with the flags and the configuration that a kubelet
	// takes: Kubelet gives one. It may be changed between a Term and a Start, for the other to go on where the one stopped.
	Binary string
	// Umask is its umask, in octal; empty for the test's own.
	Umask string

	dir        string
	daemon     *daemon.Daemon
	healthPort int
}

// firstHealthPort is the health port of a stack's first agent; nothing else listens in our network namespace.
const firstHealthPort = 10248

// Agent starts an agent for a test: NewAgent and Start. The stack ends it.
func (s *Stack) Agent(t TB, args ...string) *Agent {
	t.Helper()
	a, err := s.NewAgent(args...)
	if err == nil {
		err = a.Start()
	}
	if err != nil {
		t.Fatalf("agent: %v", err)
	}
	return a
}

// NewAgent prepares an agent with further arguments and does not start it, so that Config can be changed before.
func (s *Stack) NewAgent(args ...string) (*Agent, error) {
	if _, err := os.Stat(Binary()); err != nil {
		return nil, fmt.Errorf("the agent was not built: %w", err)
	}
	s.agentMu.Lock()
	defer s.agentMu.Unlock()
	n := len(s.agents) + 1
	name := fmt.Sprint("a", n)
	dir := filepath.Join(s.Dir, name)
	a := &Agent{
		Name:        name,
		RootDir:     filepath.Join(dir, "root"),
		ManifestDir: filepath.Join(dir, "manifests"),
		PodLogsDir:  filepath.Join(dir, "podlogs"),
		AdminSocket: filepath.Join(dir, "admin.sock"),
		LogLinksDir: filepath.Join(dir, "loglinks"),
		Args:        args,
		dir:         dir,
		daemon:      &daemon.Daemon{Name: "the agent", Log: filepath.Join(dir, "agent.log")},
		healthPort:  firstHealthPort + 100*s.number + n,
	}
	a.Config = map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"failCgroupV1":             false, // it is true by default since Kubernetes 1.36
		"failSwapOn":               false,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               s.CgroupRoot(),
		"containerRuntimeEndpoint": "unix://" + s.Socket(),
		"podLogsDir":               a.PodLogsDir,
		"healthzBindAddress":       "127.0.0.1",
		"healthzPort":              a.healthPort,
		"port":                     a.healthPort + 10000,
		"evictionHard":             map[string]string{"memory.available": "1Mi"},
		// how full this machine's disk is does not matter
	}
	for _, d := range []string{a.ManifestDir, a.RootDir, a.PodLogsDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	s.agents = append(s.agents, a)
	return a, nil
}

// Binary returns the path of the agent's binary, which is removed after the run.
func Binary() string { return filepath.Join(isolate.Dir(), binaryName) }

// CommandLine gives the arguments that Start passes.
func (a *Agent) CommandLine() []string {
	if a.Binary != "" {
		return a.kubeletLine()
	}
	return append([]string{
		"--root-dir=" + a.RootDir,
		"--cert-dir=" + filepath.Join(a.RootDir, "pki"),
		"--config=" + filepath.Join(a.dir, "config.yaml"),
		"--pod-manifest-path=" + a.ManifestDir,
		"--admin-socket=" + a.AdminSocket,
		"--log-links-dir=" + a.LogLinksDir,
		"--hostname-override=" + isolate.HostName,
		"--node-ip=" + isolate.NodeIP,
	}, a.Args...)
}

// Start starts the process and does not wait for more; it is an error when it runs already.
func (a *Agent) Start() error {
	if err := a.WriteConfig(); err != nil {
		return err
	}
	cmd := exec.Command(a.binary(), a.CommandLine()...)
	if a.Umask != "" {
		cmd = exec.Command("sh", append([]string{"-c", `umask "$0" && exec "$@"`, a.Umask, a.binary()}, a.CommandLine()...)...)
	}
	cmd.Dir = a.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir}, a.Env...)
	return a.daemon.Start(cmd)
}

// WriteConfig writes the configuration, as Start does.
func (a *Agent) WriteConfig() error {
	config, err := yaml.Marshal(a.configuration())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, "config.yaml"), config, 0o600)
}

// Running reports whether the process runs.
func (a *Agent) Running() bool { return a.daemon.Running() }

// PID is the process ID, 0 when there is none.
func (a *Agent) PID() int { return a.daemon.PID() }

// Kill9 kills the process with SIGKILL and reaps it; containers go on. No process is no error.
func (a *Agent) Kill9() error {
	_, err := a.end(syscall.SIGKILL)
	return err
}

// Term asks the process to end, reaps it, and gives its exit code, -1 where a signal ended it.
func (a *Agent) Term() (int, error) { return a.end(syscall.SIGTERM) }

func (a *Agent) end(s syscall.Signal) (int, error) {
	process := a.daemon.Process()
	if process == nil {
		return 0, nil
	}
	if err := a.daemon.End(s); err != nil {
		return 0, err
	}
	return process.ExitCode(), nil
}

// Wait waits until the process ended by itself and gives its exit code, -1 where a signal ended it.
func (a *Agent) Wait(ctx context.Context) (int, error) {
	process := a.daemon.Process()
	if process == nil {
		return 0, errors.New("the agent was not started")
	}
	select {
	case <-process.Exited():
		return process.ExitCode(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Log is all that the agent wrote to its standard output and error, over its restarts.
func (a *Agent) Log() string { return a.daemon.Text() }

// Write puts a manifest into the agent's folder, as a rename, so that it is there whole.
func (a *Agent) Write(name, manifest string) error {
	path := filepath.Join(a.dir, "new-manifest")
	if err := os.WriteFile(path, []byte(manifest), 0o644); err != nil {
		return err
	}
	return os.Rename(path, filepath.Join(a.ManifestDir, name))
}

// Remove takes a manifest out of the agent's folder.
func (a *Agent) Remove(name string) error { return os.Remove(filepath.Join(a.ManifestDir, name)) }

// Command runs a sub-command of the binary over the agent's admin socket and gives its standard output.
func (a *Agent) Command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, Binary(), append(args, "--admin-socket="+a.AdminSocket)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("playlet %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Pods returns the output of `playlet pods -o json`.
func (a *Agent) Pods(ctx context.Context) (*corev1.PodList, error) {
	out, err := a.Command(ctx, "pods", "-o", "json")
	if err != nil {
		return nil, err
	}
	list := &corev1.PodList{}
	return list, json.Unmarshal(out, list)
}

// Healthz gives status and text of the agent's health check on the admin socket, with its details; path is empty or names a
// single check. A kubelet has no such socket: there it is PublicHealthz.
func (a *Agent) Healthz(ctx context.Context, path string) (int, string, error) {
	if a.Binary != "" {
		return a.PublicHealthz(ctx, path)
	}
	return get(ctx, "http://playlet/healthz"+path, a.AdminSocket)
}

// Admin reads the JSON answer of a path of the admin socket.
func (a *Agent) Admin(ctx context.Context, path string, into any) error {
	status, text, err := get(ctx, "http://playlet"+path, a.AdminSocket)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", path, status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

// PublicHealthz is Healthz as anybody on the loopback sees it.
func (a *Agent) PublicHealthz(ctx context.Context, path string) (int, string, error) {
	return get(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz%s", a.healthPort, path), "")
}

// get asks over a socket, or over TCP where that is empty.
func get(ctx context.Context, url, socket string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	client := http.Client{Transport: transport, Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to the end
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}
