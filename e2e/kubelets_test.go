//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The runtime gets the kubelet's labels, annotations and log paths: crictl, log shippers, and a kubelet that takes over, find
// them.
func TestLabelsAnnotationsAndLogsAreTheKubelets(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		must(t, a.Write("p.yaml", strings.Replace(manifest(s, "p", `
terminationGracePeriodSeconds: 7
containers:
- name: c
  image: HELLO
  args: [append, /dev/termination-log, "", --, args, "a line", --, sleep]
  ports: [{name: http, containerPort: 8080, protocol: TCP}]
  lifecycle: {preStop: {sleep: {seconds: 0}}}`), "{name: p}", `
  name: p
  namespace: apart
  labels: {app: test}
  annotations: {"example.test/note": "a note"}`, 1)))
		c := up(t, s, "p", "c")
		uid := c.Labels[stack.UIDLabel]
		own := map[string]string{
			"io.kubernetes.pod.name": onNode("p"), "io.kubernetes.pod.namespace": "apart", stack.UIDLabel: uid,
		}
		want := maps.Clone(own)
		want["io.kubernetes.container.name"] = "c"
		if !maps.Equal(c.Labels, want) || c.Metadata.Name != "c" || c.Metadata.Attempt != 0 {
			t.Errorf("the container is %v with the labels %v", c.Metadata, c.Labels)
		}
		for key, value := range map[string]string{
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "7",
			"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,
			"io.kubernetes.container.preStopHandler":           `{"sleep":{"seconds":0}}`,
		} {
			if c.Annotations[key] != value {
				t.Errorf("annotation %s is %q, want %q", key, c.Annotations[key], value)
			}
		}
		if c.Annotations["io.kubernetes.container.hash"] == "" {
			t.Error("the container has no hash")
		}
		sandboxes, err := s.SandboxesOf(t.Context(), uid)
		must(t, err)
		want = maps.Clone(own)
		want["app"] = "test"
		podSandbox := sandboxes[0]
		if !maps.Equal(podSandbox.Labels, want) || podSandbox.Metadata.Name != onNode("p") || podSandbox.Metadata.Namespace != "apart" ||
			podSandbox.Metadata.Uid != uid {
			t.Errorf("the sandbox is %v with the labels %v", podSandbox.Metadata, podSandbox.Labels)
		}
		if podSandbox.Annotations["example.test/note"] != "a note" || podSandbox.Annotations["kubernetes.io/config.source"] != "file" ||
			podSandbox.Annotations["kubernetes.io/config.hash"] != uid || podSandbox.Annotations["kubernetes.io/config.seen"] == "" ||
			podSandbox.Annotations["playlet.dev/pod-started"] == "" || podSandbox.Annotations["playlet.dev/root-dir"] != a.RootDir ||
			len(podSandbox.Annotations) != 6 {
			t.Errorf("the sandbox has the annotations %v", podSandbox.Annotations)
		}

		folder := filepath.Join(a.PodLogsDir, "apart_"+onNode("p")+"_"+uid, "c")
		logged(t, s, c, filepath.Join(folder, "0.log"))
		c = killed(t, s, "p", "c")
		logged(t, s, c, filepath.Join(folder, "1.log"))
		if got := c.Annotations["io.kubernetes.container.restartCount"]; got != "1" {
			t.Errorf("the second container counts %q restarts", got)
		}
	})
}

// logged waits until a container's log is at this path, with a line in the format of the CRI: time, stream, tag, text.
func logged(t *testing.T, s *stack.Stack, c *runtimeapi.Container, path string) {
	t.Helper()
	resp, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
	must(t, err)
	if resp.Status.LogPath != path {
		t.Errorf("the log is %s, want %s", resp.Status.LogPath, path)
	}
	await(t, func() error {
		text, err := os.ReadFile(path)
		if err == nil && !strings.HasSuffix(string(text), " stdout F a line\n") {
			err = fmt.Errorf("%s holds %q", path, text)
		}
		return err
	})
}

// A container's termination message is in its status: from its file, or from the end of its log if the policy permits that and it
// failed.
func TestLastWords(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", `
restartPolicy: Never
containers:
- {name: nothing, image: HELLO, command: [/nothing]}
- {name: file, image: HELLO, args: [write, /dev/termination-log, bye, --, exit, "3"]}
- {name: elsewhere, image: HELLO, args: [write, /tmp/last, adieu], terminationMessagePath: /tmp/last, securityContext: {runAsUser: 1000}}
- {name: log, image: HELLO, args: [args, "from the log", --, exit, "4"], terminationMessagePolicy: FallbackToLogsOnError}
- {name: well, image: HELLO, args: [args, "from the log"], terminationMessagePolicy: FallbackToLogsOnError}
- {name: silent, image: HELLO, args: [args, "from the log", --, exit, "5"]}
- {name: long, image: HELLO, args: [write, /dev/termination-log, "`+strings.Repeat("x", 5000)+`"]}`)))
		pod := awaitPod(t, a, "p", inPhase(corev1.PodFailed))
		for _, c := range pod.Status.ContainerStatuses {
			want := map[string]struct {
				code            int32
				reason, message string
			}{
				"file":      {3, "Error", "bye\n"},
				"elsewhere": {0, "Completed", "adieu\n"},
				"log":       {4, "Error", "from the log\n"},
				"well":      {0, "Completed", ""},
				"silent":    {5, "Error", ""},
				"long":      {0, "Completed", strings.Repeat("x", 12<<10/7)}, // seven containers share 12 KiB
			}[c.Name]
			end := c.State.Terminated
			if c.Name == "nothing" { // it was never started, and the runtime reports the reason
				if end == nil || end.ExitCode != 128 || end.Reason != "StartError" || !strings.Contains(end.Message, "/nothing") {
					t.Errorf("what cannot be started ended with %+v", end)
				}
				continue
			}
			if end == nil || end.ExitCode != want.code || end.Reason != want.reason || end.Message != want.message {
				t.Errorf("container %s ended with %.500v, want %.500v", c.Name, end, want)
			}
			if end != nil && (end.StartedAt.IsZero() || end.FinishedAt.IsZero() ||
				!strings.HasPrefix(end.ContainerID, "containerd://")) {
				t.Errorf("container %s ended with %+v", c.Name, end)
			}
		}
		awaitLogged(t, a, "container ended", "exitCode=4", "reason=Error")
		awaitLogged(t, a, "container did not start", "/nothing")
	})
}

// An older runtime does not silently ignore features of newer ones: the pod waits, and reports the feature.
func TestWhatOnlySomeRuntimesCanDo(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := t.TempDir()
		below := filepath.Join(dir, "below")
		must(t, os.Mkdir(below, 0o755))
		unmount := tmpfs(t, below)
		a := agentWith(t, s, quick)
		pod := func(name, mode string) {
			must(t, a.Write(name+".yaml", manifest(s, name, fmt.Sprintf(`
restartPolicy: Never
containers:
- {name: c, image: HELLO, args: [write, /v/below/%s, x], volumeMounts: [{name: v, mountPath: /v, readOnly: true%s}]}
volumes: [{name: v, hostPath: {path: %s}}]`, name, mode, dir))))
		}
		pod("plain", "")
		pod("possible", ", recursiveReadOnly: IfPossible")
		pod("must", ", recursiveReadOnly: Enabled")
		must(t, a.Write("groups.yaml", manifest(s, "groups", `
restartPolicy: Never
securityContext: {supplementalGroupsPolicy: Strict, supplementalGroups: [4000]}
containers: [{name: c, image: HELLO, args: [id]}]`)))

		able := s.Kind() == stack.Containerd2
		wantCode := int32(0)
		if able {
			wantCode = 1
			said(t, s, "groups", "c", "uid=0 gid=0 groups=4000")
			if got := down(t, s, "must", "c").ExitCode; got != 1 {
				t.Errorf("writing below a mount that must be read-only ended with %d", got)
			}
		} else {
			awaitPod(t, a, "must", saysWaiting("CreateContainerConfigError", "/v", "recursiveReadOnly", "cannot do"))
			awaitWaiting(t, a, "groups", "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict", "cannot do")
		}
		if got := down(t, s, "possible", "c").ExitCode; got != wantCode {
			t.Errorf("writing below a mount that is read-only where possible ended with %d, want %d", got, wantCode)
		}
		if got := down(t, s, "plain", "c").ExitCode; got != 0 {
			t.Errorf("writing to what is mounted below a read-only mount ended with %d", got)
		}
		for _, name := range []string{"plain", "possible", "must", "groups"} {
			must(t, a.Remove(name+".yaml"))
		}
		cleared(t, s, a)
		unmount()
	})
}
