package locks

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/config"
)

// procWith returns a made-up /proc with one process of these arguments, in the given mount namespace.
func procWith(t *testing.T, pid int, comm, namespace string, args ...string) string {
	t.Helper()
	proc := t.TempDir()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.MkdirAll(filepath.Join(proc, "self", "ns"), 0o755),
		os.Symlink("mnt:[1]", filepath.Join(proc, "self", "ns", "mnt")), os.Symlink(namespace, filepath.Join(dir, "ns", "mnt")),
		os.WriteFile(filepath.Join(dir, "comm"), []byte(comm+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

func nodeIn(dir string) *config.Node {
	return &config.Node{RootDir: filepath.Join(dir, "root"), Kubelet: &kubeletconfig.KubeletConfiguration{
		ContainerRuntimeEndpoint: "unix://" + filepath.Join(dir, "run", "c.sock"), PodLogsDir: filepath.Join(dir, "logs"),
	}}
}

// An agent beside a kubelet would end all of its pods, which no source of the agent lists.
func TestTake_RefusesBesideAKubelet(t *testing.T) {
	dir := t.TempDir()
	node := nodeIn(dir)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "kubelet.yaml")
	must(os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
		"containerRuntimeEndpoint: "+node.Kubelet.ContainerRuntimeEndpoint+"\n"), 0o600))
	must(os.Mkdir(filepath.Join(dir, "run"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "run", "c.sock"), nil, 0o600))
	must(os.Symlink("run", filepath.Join(dir, "link")))
	endpoint := "--container-runtime-endpoint=" + node.Kubelet.ContainerRuntimeEndpoint
	other := "--container-runtime-endpoint=unix:///other.sock"
	const here = "mnt:[1]"
	for name, c := range map[string]struct {
		pid             int
		comm, namespace string
		args            []string
		want            string
	}{
		"a flag":                   {7, "kubelet", here, []string{endpoint}, "runtime " + node.Kubelet.ContainerRuntimeEndpoint},
		"by a link":                {7, "kubelet", here, []string{"--container-runtime-endpoint=unix://" + dir + "/link/c.sock"}, "runtime "},
		"a file":                   {7, "kubelet", here, []string{"--config=" + file}, "runtime "},
		"a flag that is not known": {7, "kubelet", here, []string{"--of-next-year=1", endpoint}, "runtime "},
		"an unreadable file":       {7, "kubelet", here, []string{"--config=" + file + "x"}, "runtime, as far as can be known"},
		"its root folder":          {7, "kubelet", here, []string{other, "--root-dir=" + node.RootDir + "/"}, "--root-dir " + node.RootDir},
		"another runtime":          {7, "kubelet", here, []string{other, "--root-dir=/other"}, ""},
		"in a container":           {7, "kubelet", "mnt:[2]", []string{endpoint}, ""},
		"another program":          {7, "sleep", here, []string{endpoint}, ""},
		"this process":             {os.Getpid(), "kubelet", here, []string{endpoint}, ""},
	} {
		err := noKubelet(node, procWith(t, c.pid, c.comm, c.namespace, append([]string{"kubelet"}, c.args...)...), 0)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := "a kubelet (PID 7) runs with the same " + c.want; c.want != "" && (err == nil ||
			!strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "--replace-kubelet")) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// A process that is named kubelet for a moment, like "kubelet --version", keeps no agent from its start.
func TestTake_WaitsForAKubeletThatEnds(t *testing.T) {
	node := nodeIn(t.TempDir())
	proc := procWith(t, 7, "kubelet", "mnt:[1]", "kubelet", "--container-runtime-endpoint="+node.Kubelet.ContainerRuntimeEndpoint)
	if err := noKubelet(node, proc, 0); err == nil {
		t.Fatal("the kubelet was not found")
	}
	ended := make(chan error)
	go func() { ended <- os.Rename(filepath.Join(proc, "7"), filepath.Join(proc, "ended")) }()
	if err := noKubelet(node, proc, time.Minute); err != nil {
		t.Errorf("after the end of the kubelet: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Take refuses beside a real process, and makes no folder. It succeeds once that process has ended.
func TestTake_BesideARealKubelet(t *testing.T) {
	dir := t.TempDir()
	node := nodeIn(dir)
	program := filepath.Join(dir, "kubelet")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nread line\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--container-runtime-endpoint="+node.Kubelet.ContainerRuntimeEndpoint)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	own := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "cmdline")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the arguments follow a moment after the start
		if text, err := os.ReadFile(own); err != nil || time.Now().After(deadline) {
			t.Fatalf("the process does not begin: %v", err)
		} else if len(text) > 0 {
			break
		}
	}
	silent := slog.New(slog.DiscardHandler)
	if held, err := Take(node, silent); err == nil || !strings.Contains(err.Error(), "a kubelet (PID "+strconv.Itoa(cmd.Process.Pid)) {
		t.Fatalf("beside a kubelet: %v, %v", held, err)
	}
	if _, err := os.Stat(node.RootDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the root folder was made: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	held, err := Take(node, silent)
	if err != nil {
		t.Fatalf("after the kubelet: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}
