//go:build e2e

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The tests of this file have no agent: they verify the foundation of the others.

func TestStackRunsAPod(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		ctx := t.Context()
		version, err := s.CRI().Version(ctx, &runtimeapi.VersionRequest{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[stack.Runtime]string{stack.Containerd2: "v2.4.2", stack.Containerd1: "1.6.20"}[s.Kind()]
		if !strings.HasPrefix(version.RuntimeVersion, want) {
			t.Errorf("the runtime is %s, want %s", version.RuntimeVersion, want)
		}
		p := runHello(t, s, "one")
		if got := s.Registry.Pulls("hello"); got != 1 {
			t.Errorf("hello was pulled %d times", got)
		}
		if got, want := greeting(t, p), "Hello from one: /x\n"; got != want {
			t.Errorf("the pod answers %q, want %q", got, want)
		}
		if containers, err := s.ContainersOf(ctx, p.UID); err != nil || len(containers) != 1 ||
			containers[0].Id != p.ContainerID {
			t.Errorf("containers of the pod: %v, %v", containers, err)
		}
		awaitLog(t, s, p, "listening\nGET /x\n")
		if err := s.StopPod(ctx, p, 30); err != nil {
			t.Error(err)
		}
		if err := s.AwaitNoLeftovers(); err != nil {
			t.Error(err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}

// awaitLog waits for a container's log, which the runtime writes a little after the container did.
func awaitLog(t *testing.T, s *stack.Stack, p *stack.Pod, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		log, err := s.Logs(t.Context(), p.ContainerID)
		if err != nil {
			t.Fatal(err)
		}
		if log == want {
			return
		}
		if time.Now().After(deadline) || !strings.HasPrefix(want, log) {
			t.Fatalf("log %q, want %q", log, want)
		}
	}
}

// nothingLeft looks further than Leftovers: at everything in the namespaces.
func nothingLeft(t *testing.T, s *stack.Stack) {
	t.Helper()
	// The namespaces' init, this test and the cluster that tests share remain.
	if pids, err := filepath.Glob("/proc/[0-9]*"); err != nil || len(pids) != 2+len(cluster.PIDs()) {
		for _, dir := range pids {
			args, _ := os.ReadFile(dir + "/cmdline") // one that ended meanwhile
			t.Errorf("process left: %s %q", dir, args)
		}
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, isolate.Dir()) || strings.HasPrefix(m.Mountpoint, "/run/") {
			t.Errorf("mount left: %s", m.Mountpoint)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name != "lo" && link.Name != isolate.HostName {
			t.Errorf("interface left: %s", link.Name)
		}
	}
	points, err := namespaces.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range points {
		if dirs, err := namespaces.Below(point); err != nil || len(dirs) != 0 && !strings.HasSuffix(dirs[0], "/init") {
			t.Errorf("cgroups left: %v %v", dirs, err)
		}
	}
}

// A running pod shows in every kind of leftover, so that missing leftovers mean something.
func TestLeftoversAreSeen(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		p := runHello(t, s, "one")
		greeting(t, p) // it proves that its process has begun
		left, err := s.Leftovers()
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(left, "\n")
		for _, want := range []string{"containerd-shim-runc-v2", "/hello", "/pause", "mount ", "cgroup ", "network namespace ",
			"interface veth", "lease "} {
			if !strings.Contains(all, want) {
				t.Errorf("a running pod does not show as %q:\n%s", want, all)
			}
		}
		if err := s.StopPod(t.Context(), p, 0); err != nil {
			t.Error(err)
		}
	})
}

// Pods outlive their runtime; a sandbox does not outlive its process.
func TestRuntimeComesAndGoes(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		ctx := t.Context()
		p := runHello(t, s, "one")
		for _, again := range []func() error{
			s.RestartRuntime,
			func() error {
				if err := s.KillRuntime(); err != nil {
					return err
				}
				greeting(t, p)
				return s.StartRuntime()
			},
		} {
			if err := again(); err != nil {
				t.Fatal(err)
			}
			greeting(t, p)
			if state := sandboxState(t, s, p); state != runtimeapi.PodSandboxState_SANDBOX_READY {
				t.Errorf("the sandbox is %v", state)
			}
		}
		if err := s.FreezeRuntime(); err != nil {
			t.Fatal(err)
		}
		frozen, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := s.CRI().Version(frozen, &runtimeapi.VersionRequest{}); err == nil {
			t.Error("a frozen runtime answers")
		}
		if err := s.ThawRuntime(); err != nil {
			t.Fatal(err)
		}
		if err := s.KillSandboxProcess(ctx, p.UID); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Minute)
		for sandboxState(t, s, p) == runtimeapi.PodSandboxState_SANDBOX_READY {
			if time.Now().After(deadline) {
				t.Fatal("a sandbox whose process was killed stays ready")
			}
			time.Sleep(10 * time.Millisecond)
		}
		// The runtime is dead when the stack is stopped: it is started again to remove the pod.
		if err := s.KillRuntime(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFloor(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		times, total, err := s.Floor(t.Context(), nil, 5, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(times) != 5 {
			t.Fatalf("%d times", len(times))
		}
		underWay := 0
		for _, p := range times {
			if p.Own() <= 0 || p.Started > total {
				t.Errorf("%+v of %v", p, total)
			}
			for _, q := range times {
				if q.Begun <= p.Begun && p.Begun < q.Started {
					underWay++
				}
			}
			if underWay > 2 {
				t.Errorf("%d pods under way at %v", underWay, p.Begun)
			}
			underWay = 0
		}
		t.Logf("%v in all; %v", total, times)
		if err := s.AwaitNoLeftovers(); err != nil {
			t.Error(err)
		}
	})
}

func sandboxState(t *testing.T, s *stack.Stack, p *stack.Pod) runtimeapi.PodSandboxState {
	t.Helper()
	sandboxes, err := s.SandboxesOf(t.Context(), p.UID)
	if err != nil || len(sandboxes) != 1 {
		t.Fatalf("sandboxes of the pod: %v, %v", sandboxes, err)
	}
	return sandboxes[0].State
}

func runHello(t *testing.T, s *stack.Stack, name string) *stack.Pod {
	t.Helper()
	if _, err := s.Pull(t.Context(), s.HelloImage()); err != nil {
		t.Fatal(err)
	}
	p, err := s.RunPod(t.Context(), name, s.HelloImage())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// greeting asks the hello server of a pod, which may take a moment to listen.
func greeting(t *testing.T, p *stack.Pod) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		resp, err := client.Get("http://" + net.JoinHostPort(p.IP, "8080") + "/x")
		if err == nil {
			defer resp.Body.Close() //nolint:errcheck // read to the end
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
