//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
)

// probedManifest is a pod in which FOLDER stands for a folder of the test's, that is mounted at /f.
func probedManifest(s *stack.Stack, folder, name, spec string) string {
	spec = strings.ReplaceAll(spec, "MOUNT", "volumeMounts: [{name: f, mountPath: /f}]")
	return manifest(s, name, spec+"\nvolumes: [{name: f, hostPath: {path: "+folder+"}}]")
}

// readies is for awaitPod: exactly these containers are ready.
func readies(names ...string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		var is []string
		for _, c := range p.Status.ContainerStatuses {
			if c.Ready {
				is = append(is, c.Name)
			}
		}
		if got, want := strings.Join(is, " "), strings.Join(names, " "); got != want {
			return fmt.Errorf("ready are %q, want %q: %+v", got, want, p.Status.ContainerStatuses)
		}
		return nil
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o644))
}

// Each kind of probe makes its container ready, and unready when its check fails.
func TestEachKindOfProbe(t *testing.T) {
	const spec = `
terminationGracePeriodSeconds: 2
containers:
- {name: command, image: HELLO, args: [sleep], MOUNT, readinessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [/hello, check-file, /f/ready]}}}
- {name: http, image: HELLO, args: [serve, "8080"], ports: [{name: web, containerPort: 8080}], readinessProbe: {periodSeconds: 1, httpGet: {path: /status/204, port: web}}}
- {name: unwell, image: HELLO, args: [serve, "8081"], readinessProbe: {periodSeconds: 1, httpGet: {path: /status/503, port: 8081}}}
- {name: tcp, image: HELLO, args: [serve, "8082"], readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8082}}}
- {name: closed, image: HELLO, args: [sleep], readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8083}}}`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, folder := agentWith(t, s, quick), t.TempDir()
		must(t, a.Write("p.yaml", probedManifest(s, folder, "p", spec)))
		pod := awaitPod(t, a, "p", readies("http", "tcp"))
		if ready(pod) == nil {
			t.Error("the pod is ready, and three of its containers are not")
		}
		touch(t, filepath.Join(folder, "ready"))
		awaitPod(t, a, "p", readies("command", "http", "tcp"))
		must(t, os.Remove(filepath.Join(folder, "ready")))
		awaitPod(t, a, "p", readies("http", "tcp"))
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
	})
}

// A gRPC probe asks the health service, here of a server on the node, where the pod's network is.
func TestGRPCProbe(t *testing.T) {
	const spec = `
hostNetwork: true
terminationGracePeriodSeconds: 2
containers: [{name: c, image: HELLO, args: [sleep], readinessProbe: {periodSeconds: 1, failureThreshold: 1, grpc: {port: PORT, service: mine}}}]`
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, quick)
	listener, err := net.Listen("tcp", isolate.NodeIP+":0")
	must(t, err)
	server, checks := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, checks)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	defer server.Stop()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	checks.SetServingStatus("mine", grpc_health_v1.HealthCheckResponse_SERVING)
	must(t, a.Write("p.yaml", manifest(s, "p", strings.ReplaceAll(spec, "PORT", port))))
	awaitPod(t, a, "p", ready)
	checks.SetServingStatus("mine", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	awaitPod(t, a, "p", readies())
	must(t, a.Remove("p.yaml"))
	cleared(t, s, a)
}

// A container that fails its liveness probe is ended with the probe's grace period, not the pod's, and is started again.
func TestLivenessRestartsWithItsGrace(t *testing.T) {
	const spec = `
terminationGracePeriodSeconds: 3600
containers:
- {name: c, image: HELLO, args: [ignore-term], MOUNT, livenessProbe: {periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1, exec: {command: [/hello, check-file, /f/alive]}}}
- {name: other, image: HELLO, args: [sleep]}`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, folder := agentWith(t, s, quick), t.TempDir()
		touch(t, filepath.Join(folder, "alive"))
		must(t, a.Write("p.yaml", probedManifest(s, folder, "p", spec)))
		before := awaitPod(t, a, "p", ready)
		must(t, os.Remove(filepath.Join(folder, "alive")))
		awaitPod(t, a, "p", func(p *corev1.Pod) error {
			if c := statusOf(p, "c"); c.RestartCount == 0 || c.LastTerminationState.Terminated == nil &&
				c.State.Terminated == nil {
				return fmt.Errorf("it is %+v", c)
			}
			return nil
		})
		awaitLogged(t, a, "Container c failed liveness probe, will be restarted")
		touch(t, filepath.Join(folder, "alive"))
		after := awaitPod(t, a, "p", ready)
		if end := statusOf(after, "c").LastTerminationState.Terminated; end == nil || end.ExitCode != 137 {
			t.Errorf("it ended so: %+v", end)
		}
		if was, is := statusOf(before, "other"), statusOf(after, "other"); was.ContainerID != is.ContainerID {
			t.Error("the other container was restarted, too")
		}
		pid, err := s.ContainerPID(t.Context(), up(t, s, "p", "c").Id)
		must(t, err)
		must(t, a.Remove("p.yaml"))
		awaitLogged(t, a, "stopping container", "1h0m0s")
		must(t, syscall.Kill(pid, syscall.SIGKILL)) // nothing else ends it within the pod's own grace
		cleared(t, s, a)
	})
}

// The containers after a sidecar wait for its startup probe, and a container's other probes wait for its own.
func TestStartupGates(t *testing.T) {
	const spec = `
terminationGracePeriodSeconds: 2
initContainers:
- {name: side, image: HELLO, args: [sleep], restartPolicy: Always, MOUNT, startupProbe: {periodSeconds: 1, failureThreshold: 1000, exec: {command: [/hello, check-file, /f/side]}}}
- {name: init, image: HELLO, args: [write, /f/init, done], MOUNT}
containers:
- {name: main, image: HELLO, args: [sleep], MOUNT, startupProbe: {periodSeconds: 1, failureThreshold: 1000, exec: {command: [/hello, check-file, /f/main]}}, livenessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [/hello, check-file, /f/main]}}}`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, folder := agentWith(t, s, quick), t.TempDir()
		must(t, a.Write("p.yaml", probedManifest(s, folder, "p", spec)))
		up(t, s, "p", "side")
		awaitLogged(t, a, "below the failure threshold", "startup", "side")
		if !absent(filepath.Join(folder, "init")) || len(containersOf(t, s, "p")) != 1 {
			t.Error("what comes after the sidecar did not wait for it")
		}
		touch(t, filepath.Join(folder, "side"))
		up(t, s, "p", "main")
		awaitFile(t, filepath.Join(folder, "init"), "done\n")
		awaitLogged(t, a, "below the failure threshold", "startup", "main")
		pod := awaitPod(t, a, "p", inPhase(corev1.PodRunning))
		if c := statusOf(pod, "main"); c.Ready || *c.Started {
			t.Errorf("it has not started: %+v", c)
		}
		touch(t, filepath.Join(folder, "main"))
		pod = awaitPod(t, a, "p", ready)
		if c := statusOf(pod, "main"); c.RestartCount > 0 || !*c.Started {
			t.Errorf("it has started: %+v", c)
		}
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
	})
}

// A kill and restart of the agent never changes the reported readiness: a ready container stays ready, although its probe cannot
// run for a long time, and an unready one stays unready.
func TestReadinessOutlivesTheAgent(t *testing.T) {
	const spec = `
terminationGracePeriodSeconds: 2
containers:
- {name: good, image: HELLO, args: [sleep], MOUNT, startupProbe: {periodSeconds: 1, exec: {command: [/hello, check-file, /f/good]}}, readinessProbe: {periodSeconds: 1, exec: {command: [/hello, check-file, /f/good]}}}
- {name: bad, image: HELLO, args: [sleep], MOUNT, readinessProbe: {periodSeconds: 1, exec: {command: [/hello, check-file, /f/bad]}}}`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, folder := agentWith(t, s, quick), t.TempDir()
		touch(t, filepath.Join(folder, "good"))
		must(t, a.Write("p.yaml", probedManifest(s, folder, "p", spec)))
		was := awaitPod(t, a, "p", func(p *corev1.Pod) error {
			if c := statusOf(p, "bad"); c.Started == nil || !*c.Started { // it starts after the other, which may be ready by then
				return errors.New("bad has not started")
			}
			return readies("good")(p)
		})
		kept := filepath.Join(a.RootDir, "pods", string(was.UID), "probes.json")
		await(t, func() error {
			text, err := os.ReadFile(kept)
			if err == nil && !strings.Contains(string(text), `"startup":"succeeded","readiness":"succeeded"`) {
				err = fmt.Errorf("kept is %s", text)
			}
			return err
		})
		for range 3 {
			must(t, a.Kill9())
			must(t, a.Start())
			for said := 0; said < 20; {
				now, err := a.Snapshot(t.Context())
				if err != nil {
					continue
				}
				pod := now.Pod(onNode("p"))
				if pod == nil || len(pod.Pod.Status.ContainerStatuses) == 0 {
					continue // nothing is known yet, and nothing is reported
				}
				said++
				must(t, readies("good")(pod.Pod))
				for _, name := range []string{"good", "bad"} {
					if c := statusOf(pod.Pod, name); c.ContainerID != statusOf(was, name).ContainerID || c.Started == nil ||
						!*c.Started {
						t.Fatalf("%s is %+v", name, c)
					}
				}
			}
		}
		must(t, os.Remove(filepath.Join(folder, "good")))
		awaitPod(t, a, "p", readies())
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
	})
}

// A container has not started before its post-start hook has ended, also if the agent is killed in the meantime: then the hook
// runs again. A container with a failed hook is ended, and restartPolicy applies.
func TestPostStartHooks(t *testing.T) {
	const spec = `
terminationGracePeriodSeconds: 2
initContainers:
- {name: side, image: HELLO, args: [sleep], restartPolicy: Always, MOUNT, lifecycle: {postStart: {exec: {command: [/hello, append, /f/ran, hook, --, wait-file, /f/go]}}}}
containers:
- {name: main, image: HELLO, args: [serve, "8080"], ports: [{name: web, containerPort: 8080}], lifecycle: {postStart: {httpGet: {path: /status/204, port: web}}}}`
	const failing = `
restartPolicy: Never
terminationGracePeriodSeconds: 2
containers: [{name: c, image: HELLO, args: [ignore-term], lifecycle: {postStart: {exec: {command: [/hello, exit, "3"]}}}}]`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, folder := agentWith(t, s, quick), t.TempDir()
		must(t, a.Write("p.yaml", probedManifest(s, folder, "p", spec)))
		side := up(t, s, "p", "side")
		awaitFile(t, filepath.Join(folder, "ran"), "hook\n")
		must(t, a.Kill9())
		must(t, a.Start())
		awaitFile(t, filepath.Join(folder, "ran"), "hook\nhook\n")
		if n := len(containersOf(t, s, "p")); n != 1 {
			t.Errorf("%d containers, while the hook of the first runs", n)
		}
		touch(t, filepath.Join(folder, "go"))
		awaitPod(t, a, "p", ready)
		if is := up(t, s, "p", "side"); is.Id != side.Id {
			t.Error("the sidecar is another")
		}
		must(t, a.Write("failing.yaml", manifest(s, "failing", failing)))
		awaitPod(t, a, "failing", inPhase(corev1.PodFailed))
		awaitLogged(t, a, "FailedPostStartHook")
		must(t, a.Remove("failing.yaml"))
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
	})
}
