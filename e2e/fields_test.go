//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// said compares the output of a container that ended with 0.
func said(t *testing.T, s *stack.Stack, pod, container string, want ...string) {
	t.Helper()
	c := down(t, s, pod, container)
	got := output(t, s, pod, container)
	if c.ExitCode != 0 || got != strings.Join(want, "\n")+"\n" {
		t.Errorf("container %s ended with %d and wrote\n%swant\n%s", container, c.ExitCode, got, strings.Join(want, "\n"))
	}
}

// statusLine returns a value of /proc/self/status printed by a container (proc_pid_status(5)).
func statusLine(t *testing.T, s *stack.Stack, pod, container, name string) string {
	t.Helper()
	for line := range strings.Lines(output(t, s, pod, container)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Errorf("container %s wrote nothing of %s: %s", container, name, output(t, s, pod, container))
	return ""
}

// Command and arguments with their references, environment, working directory.
func TestCommandAndEnvironment(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("p.yaml", strings.Replace(manifest(s, "p", `
restartPolicy: Never
containers:
- {name: image, image: HELLO, args: [args, "a b", ""]}
- {name: command, image: HELLO, command: [/hello, args, "x"]}
- name: both
  image: HELLO
  command: [/hello, args, "$(GREETING)", "$$(GREETING)", "$(NONE)"]
  args: ["to $(WHOM)", "$(LATER)"]
  env: [{name: WHOM, value: world}, {name: GREETING, value: "hello $(WHOM)"}, {name: LATER, value: "$(AFTER)"}, {name: AFTER, value: x}]
- {name: pwd, image: HELLO, args: [pwd]}
- {name: workdir, image: HELLO, args: [pwd], workingDir: /etc}
- {name: new-workdir, image: HELLO, args: [pwd], workingDir: /new/one}
- {name: env, image: HELLO, args: [env], env: [{name: A, value: "b c"}, {name: EMPTY}, {name: PATH, value: /other}]}
- {name: image-env, image: HELLO, args: [env, PATH]}
- name: fields
  image: HELLO
  args: [args, "$(NAME) $(NAMESPACE) $(UID)", "$(NODE) $(NODE_IP)", "$(IP) $(IPS)", "$(ACCOUNT) $(ROLE) $(SOURCE)"]
  env:
  - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
  - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
  - {name: ROLE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['test/role']"}}}
  - {name: SOURCE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['kubernetes.io/config.source']"}}}`), "{name: p}", "{name: p, labels: {test/role: x}}", 1)))
		said(t, s, "p", "image", "a b", "")
		said(t, s, "p", "command", "x")
		said(t, s, "p", "both", "hello world", "$(GREETING)", "$(NONE)", "to world", "$(AFTER)")
		said(t, s, "p", "pwd", "/")
		said(t, s, "p", "workdir", "/etc")
		said(t, s, "p", "new-workdir", "/new/one")
		said(t, s, "p", "image-env", "/")
		down(t, s, "p", "env")
		lines := strings.Split(strings.TrimSpace(output(t, s, "p", "env")), "\n")
		slices.Sort(lines)
		if want := []string{"A=b c", "EMPTY=", "HOME=/", "HOSTNAME=" + onNode("p"), "PATH=/other"}; !slices.Equal(lines, want) {
			t.Errorf("the environment is %q, want %q", lines, want)
		}
		pod := awaitPod(t, a, "p", inPhase(corev1.PodSucceeded))
		ip := podIP(t, s, pod)
		if shown := strings.Fields(output(t, s, "p", "fields")); ip == "" && len(shown) > 5 { // the stopped sandbox has lost it
			addr, err := netip.ParseAddr(shown[5])
			must(t, err)
			ip = addr.String()
		}
		said(t, s, "p", "fields", onNode("p")+" default "+string(pod.UID), isolate.HostName+" "+isolate.NodeIP, ip+" "+ip,
			" x file")
	})
}

// A container's environment comes from a file that another container of its pod has written, and the container waits for a
// missing file (KEP-3721).
func TestEnvironmentFiles(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", `
restartPolicy: Never
initContainers:
- {name: writes, image: HELLO, args: [append, /files/env, "A='a $B'", --, append, /files/env, "B='b", --, append, /files/env, "c' # d"], volumeMounts: [{name: files, mountPath: /files}]}
containers:
- name: reads
  image: HELLO
  args: [args, "$(A)", "$(B)", "$(C)"]
  env:
  - {name: A, valueFrom: {fileKeyRef: {volumeName: files, path: env, key: A}}}
  - {name: B, valueFrom: {fileKeyRef: {volumeName: files, path: env, key: B}}}
  - {name: C, valueFrom: {fileKeyRef: {volumeName: files, path: env, key: C, optional: true}}}
- {name: cannot, image: HELLO, args: [sleep], env: [{name: C, valueFrom: {fileKeyRef: {volumeName: files, path: env, key: C}}}]}
volumes: [{name: files, emptyDir: {}}]`)))
		said(t, s, "p", "reads", "a $B", "b\nc", "$(C)")
		pod := awaitPod(t, a, "p", func(p *corev1.Pod) error {
			if w := statusOf(p, "cannot").State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" {
				return fmt.Errorf("container cannot is %+v", statusOf(p, "cannot").State)
			}
			return nil
		})
		if text := statusOf(pod, "cannot").State.Waiting.Message; !strings.Contains(text, "file env") || !strings.Contains(text, `"files"`) || !strings.Contains(text, "key C") {
			t.Errorf("it waits and says %q", text)
		}
	})
}

// An environment or an argument that no program can be given fails the container, as with the kubelet, and with it a pod that is
// not restarted.
func TestProgramThatCannotBeStarted(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		big := strings.Repeat("x", 140_000)
		must(t, a.Write("env.yaml", manifest(s, "env", `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [sleep], env: [{name: BIG, value: `+big+`}]}]`)))
		must(t, a.Write("args.yaml", manifest(s, "args", `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [`+big+`]}]`)))
		for _, name := range []string{"env", "args"} {
			pod := awaitPod(t, a, name, func(p *corev1.Pod) error {
				if p.Status.Phase != corev1.PodFailed {
					return fmt.Errorf("phase %s, container %+v", p.Status.Phase, statusOf(p, "c").State)
				}
				return nil
			})
			if end := statusOf(pod, "c").State.Terminated; end == nil || end.ExitCode == 0 {
				t.Errorf("pod %s: container ended with %+v", name, end)
			} else {
				t.Logf("pod %s: exit code %d, reason %s, message %s", name, end.ExitCode, end.Reason, end.Message)
			}
			awaitLogged(t, a, "container cannot start", onNode(name), "longer than a program's can be")
		}
	})
}

// podIP is the address of a pod's sandbox; the status of a pod that has ended has none.
func podIP(t *testing.T, s *stack.Stack, pod *corev1.Pod) string {
	t.Helper()
	sandboxes, err := s.SandboxesOf(t.Context(), string(pod.UID))
	must(t, err)
	if len(sandboxes) != 1 {
		t.Fatalf("pod %s has %d sandboxes", pod.Name, len(sandboxes))
	}
	ip, err := s.PodIP(t.Context(), sandboxes[0].Id)
	must(t, err)
	return ip
}

// User and privileges.
func TestSecurityContext(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, err := s.NewAgent()
		must(t, err)
		a.Umask = "0077" // for any starter of the agent: the pods' files are readable by pods
		must(t, a.Start())
		profiles := filepath.Join(a.RootDir, "seccomp")
		must(t, os.MkdirAll(profiles, 0o755))
		must(t, os.WriteFile(filepath.Join(profiles, "no-groups.json"), []byte(
			`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["getgroups"], "action": "SCMP_ACT_ERRNO"}]}`), 0o644))
		must(t, a.Write("p.yaml", manifest(s, "p", `
restartPolicy: Never
securityContext: {runAsUser: 1000, runAsGroup: 3000, supplementalGroups: [4000, 5000]}
containers:
- {name: pods, image: HELLO, args: [id]}
- {name: own, image: HELLO, args: [id], securityContext: {runAsUser: 2000, runAsNonRoot: true}}
- {name: plain, image: HELLO, args: [cat, /proc/self/status, --, write, /tmp/x, text]}
- {name: hosts, image: HELLO, args: [cat, /etc/hosts]}
- {name: read-only, image: HELLO, args: [write, /tmp/x, text], securityContext: {readOnlyRootFilesystem: true}}
- {name: no-new, image: HELLO, args: [cat, /proc/self/status], securityContext: {allowPrivilegeEscalation: false}}
- {name: default-seccomp, image: HELLO, args: [cat, /proc/self/status], securityContext: {seccompProfile: {type: RuntimeDefault}}}
- {name: no-seccomp, image: HELLO, args: [cat, /proc/self/status], securityContext: {seccompProfile: {type: Unconfined}}}
- {name: own-seccomp, image: HELLO, args: [id], securityContext: {seccompProfile: {type: Localhost, localhostProfile: no-groups.json}}}`)))
		must(t, a.Write("root.yaml", manifest(s, "root", `
restartPolicy: Never
containers:
- {name: plain, image: HELLO, args: [cat, /proc/self/status]}
- {name: none, image: HELLO, args: [cat, /proc/self/status], securityContext: {capabilities: {drop: [ALL]}}}
- {name: one, image: HELLO, args: [cat, /proc/self/status], securityContext: {capabilities: {drop: [ALL], add: [NET_ADMIN]}}}
- {name: all, image: HELLO, args: [cat, /proc/self/status, --, check-file, /dev/loop-control], securityContext: {privileged: true}}
- {name: masked, image: HELLO, args: [write, /proc/sys/kernel/domainname, x]}
- {name: refused, image: HELLO, args: [id], securityContext: {runAsNonRoot: true}}`)))

		said(t, s, "p", "pods", "uid=1000 gid=3000 groups=3000,4000,5000")
		said(t, s, "p", "own", "uid=2000 gid=3000 groups=3000,4000,5000")
		said(t, s, "p", "own-seccomp", "uid=1000 gid=3000 groups=")
		for container, want := range map[string]int32{"plain": 0, "hosts": 0, "read-only": 1} {
			if got := down(t, s, "p", container).ExitCode; got != want {
				t.Errorf("container %s ended with %d, want %d: %s", container, got, want, output(t, s, "p", container))
			}
		}
		for _, c := range []struct{ pod, container, line, want string }{
			{"p", "plain", "NoNewPrivs", "0"},
			{"p", "no-new", "NoNewPrivs", "1"},
			{"p", "plain", "Seccomp", "0"},
			{"p", "no-seccomp", "Seccomp", "0"},
			{"p", "default-seccomp", "Seccomp", "2"},
			{"p", "plain", "CapEff", "0000000000000000"},
			{"root", "none", "CapEff", "0000000000000000"},
			{"root", "one", "CapEff", "0000000000001000"}, // CAP_NET_ADMIN is 12
			{"root", "plain", "CapEff", "00000000a80425fb"},
			{"root", "all", "CapEff", ownCapabilities(t)},
		} {
			down(t, s, c.pod, c.container)
			if got := statusLine(t, s, c.pod, c.container, c.line); got != c.want {
				t.Errorf("%s of container %s of pod %s is %s, want %s", c.line, c.container, c.pod, got, c.want)
			}
		}
		if got := down(t, s, "root", "all").ExitCode; got != 0 {
			t.Error("a privileged container does not see the host's devices")
		}
		if got := down(t, s, "root", "masked").ExitCode; got != 1 {
			t.Error("a container can write to /proc/sys")
		}
		awaitPod(t, a, "root", saysWaiting("CreateContainerConfigError", "runAsNonRoot", "root"))
		awaitLogged(t, a, "a pod waits", onNode("root"), "CreateContainerConfigError", "runAsNonRoot")
	})
}

// ownCapabilities returns the capabilities of this process, which equal the runtime's: a privileged container gets them all.
func ownCapabilities(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, after, _ := strings.Cut(string(text), "CapEff:")
	value, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(value)
}

// Limits and requests apply to the container's cgroup, as read by the container itself; a container above its memory limit is
// killed, and that is reported.
func TestResources(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
		memory, quota := "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
		wantQuota := "25000"
		if err == nil { // version 2
			memory, quota, wantQuota = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max", "25000 100000"
		}
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", fmt.Sprintf(`
restartPolicy: Never
containers:
- name: limited
  image: HELLO
  args: [cat, %s, --, cat, %s, --, cat, /proc/self/oom_score_adj]
  resources: {limits: {cpu: 250m, memory: 64Mi}, requests: {cpu: 100m}}
- {name: free, image: HELLO, args: [cat, %s, --, cat, /proc/self/oom_score_adj]}
- {name: greedy, image: HELLO, args: [alloc, "200", --, sleep], resources: {limits: {memory: 32Mi}}}`, memory, quota, memory))))
		must(t, a.Write("best.yaml", manifest(s, "best", `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [cat, /proc/self/oom_score_adj]}]`)))
		limited := down(t, s, "p", "limited")
		lines := strings.Split(strings.TrimSpace(output(t, s, "p", "limited")), "\n")
		if len(lines) != 3 || lines[0] != strconv.Itoa(64<<20) || lines[1] != wantQuota {
			t.Errorf("the container reads %q of its limits", lines)
		}
		if limited.Resources != nil { // the old runtime does not report them
			if r := limited.Resources.Linux; r.CpuShares != 102 || r.MemoryLimitInBytes != 64<<20 || r.CpuQuota != 25000 ||
				r.CpuPeriod != 100000 {
				t.Errorf("the runtime says %v", r)
			}
		}
		down(t, s, "p", "free")
		free := strings.Split(strings.TrimSpace(output(t, s, "p", "free")), "\n")
		if limit, err := strconv.ParseInt(free[0], 10, 64); err == nil && limit <= 64<<20 {
			t.Errorf("without a limit the memory is limited to %d", limit)
		}
		said(t, s, "best", "c", "1000") // the first to go when memory is short
		pod := awaitPod(t, a, "p", inPhase(corev1.PodFailed))
		for _, c := range pod.Status.ContainerStatuses {
			if end := c.State.Terminated; c.Name == "greedy" && (end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137) {
				t.Errorf("the container that took too much memory ended with %+v", c.State)
			}
		}
		if pod.Status.QOSClass != corev1.PodQOSBurstable {
			t.Errorf("the pod is %s", pod.Status.QOSClass)
		}
	})
}
