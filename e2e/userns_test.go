//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// ownUsers are the first lines of a manifest of a pod with a user namespace.
const ownUsers = "hostUsers: false\nterminationGracePeriodSeconds: 1\n"

// rangeOf returns the first host ID of a pod, by the record in its folder.
func rangeOf(t *testing.T, a *stack.Agent, name string) int {
	t.Helper()
	pod := awaitPod(t, a, name, func(p *corev1.Pod) error { return nil })
	text, err := os.ReadFile(filepath.Join(a.RootDir, "pods", string(pod.UID), "userns"))
	must(t, err)
	var first int
	one := `[{"hostId":%d,"containerId":0,"length":65536}]`
	_, err = fmt.Sscanf(string(text), `{"uidMappings":`+one, &first)
	must(t, err)
	if want := fmt.Sprintf(`{"uidMappings":`+one+`,"gidMappings":`+one+`}`, first, first); string(text) != want {
		t.Errorf("the record of pod %s is %s, want %s", name, text, want)
	}
	return first
}

// idMap is the text of /proc/self/uid_map with this range.
func idMap(first int) string { return fmt.Sprintf("%10d %10d %10d\n", 0, first, 65536) }

// Pods with user namespaces have ranges of their own, use all kinds of volumes, and keep their range over the death of the agent
// and of their sandbox. A range is free when nothing of its pod is left. A runtime without user namespaces gets no such pod.
func TestUserNamespaces(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		objects, shared := t.TempDir(), t.TempDir()
		must(t, os.Chmod(shared, 0o700))
		must(t, os.WriteFile(filepath.Join(objects, "o.yaml"), []byte(`
{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {key: "secret\n"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {key: "config\n"}}
`), 0o600))
		a := agentWith(t, s, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--object-dir="+objects) })
		must(t, a.Write("again.yaml", manifest(s, "again", ownUsers+`containers:
- {name: c, image: HELLO, args: [cat, /proc/self/uid_map, --, cat, /proc/self/gid_map, --, sleep]}`)))
		if !s.HasEvents() { // 1.6
			awaitWaiting(t, a, "again", "FailedCreatePodSandBox", "spec.hostUsers is false, which this container runtime")
			return
		}
		c := up(t, s, "again", "c")
		first := rangeOf(t, a, "again")
		awaitLogs(t, s, c.Id, strings.Repeat(idMap(first), 2))

		push(t, s, "files", "1")
		must(t, a.Write("own.yaml", manifest(s, "own", ownUsers+fmt.Sprintf(`restartPolicy: Never
securityContext: {fsGroup: 2000}
containers:
- name: c
  image: HELLO
  args: [id, --, cat, /proc/self/uid_map, --, write, /data/x, z, --, write, /memory/x, z, --, write, /part/x, z, --,
    write, /host/x, z, --, cat, /secret/key, --, cat, /config/key, --, cat, /down/name, --, cat, /files/etc/group, --,
    append, /etc/hosts, "#", --, sleep]
  volumeMounts: &mounts
  - {name: data, mountPath: /data}
  - {name: data, mountPath: /part, subPath: part}
  - {name: memory, mountPath: /memory}
  - {name: host, mountPath: /host}
  - {name: secret, mountPath: /secret}
  - {name: config, mountPath: /config}
  - {name: down, mountPath: /down}
  - {name: files, mountPath: /files}
- {name: user, image: HELLO, args: [id, --, cat, /secret/key, --, write, /data/user, z], volumeMounts: *mounts,
   securityContext: {runAsUser: 1000, runAsGroup: 3000}}
- {name: message, image: HELLO, args: [write, /dev/termination-log, bye, --, exit, "3"]}
- {name: masked, image: HELLO, args: [cat, /proc/self/mountinfo]}
- {name: unmasked, image: HELLO, args: [cat, /proc/self/mountinfo], securityContext: {procMount: Unmasked}}
- {name: sysfs, image: HELLO, args: [sleep], volumeMounts: [{name: sysfs, mountPath: /host}]}
volumes:
- {name: data, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory}}
- {name: host, hostPath: {path: %s}}
- {name: sysfs, hostPath: {path: /sys/kernel}}
- {name: secret, secret: {secretName: s, defaultMode: 0400}}
- {name: config, configMap: {name: c}}
- {name: down, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
- {name: files, image: {reference: %s}}`, shared, s.Registry.Ref("files")))))
		own := up(t, s, "own", "c")
		second := rangeOf(t, a, "own")
		if first == second || first%65536 != 0 || first == 0 || second%65536 != 0 || second == 0 {
			t.Errorf("the ranges begin at %d and %d", first, second)
		}
		awaitLogs(t, s, own.Id, "uid=0 gid=0 groups=0,2000\n"+idMap(second)+"secret\nconfig\n"+onNode("own")+"root:x:0:\nnobody:x:65534:\n")
		said(t, s, "own", "user", "uid=1000 gid=3000 groups=2000,3000", "secret")
		pod := awaitPod(t, a, "own", func(p *corev1.Pod) error {
			if statusOf(p, "message").State.Terminated == nil {
				return fmt.Errorf("status: %+v", p.Status)
			}
			return nil
		})
		if end := statusOf(pod, "message").State.Terminated; end.ExitCode != 3 || end.Message != "bye\n" {
			t.Errorf("the termination message: %+v", end)
		}
		for container, want := range map[string]bool{"masked": true, "unmasked": false} {
			if mounts := output(t, s, "own", container); strings.Contains(mounts, " /proc/sys ") != want {
				t.Errorf("container %s has /proc/sys mounted read-only: want %t: %s", container, want, mounts)
			}
		}
		folder := filepath.Join(a.RootDir, "pods", string(pod.UID))
		data := filepath.Join(folder, "volumes/kubernetes.io~empty-dir/data")
		for file, uid := range map[string]uint32{data + "/x": 0, data + "/user": 1000, data + "/part/x": 0, shared + "/x": 0} {
			info, err := os.Stat(file)
			must(t, err)
			if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
				t.Errorf("on disk %s belongs to %d, want %d", file, got, uid)
			}
		}
		awaitLogged(t, a, "container did not start", onNode("own"), "the file system of /sys/kernel, sysfs, cannot be mounted")
		out, errs, code := playlet(t, "exec", "--admin-socket="+a.AdminSocket, "again", "--", "/hello", "id")
		if code != 0 || !strings.HasPrefix(out, "uid=0 gid=0") {
			t.Errorf("exec: %s%s, code %d", out, errs, code)
		}

		// A process that escaped from pod "again" with its IDs.
		for _, path := range []string{data + "/x", folder + "/etc-hosts", folder + "/userns", shared + "/x"} {
			for _, command := range [][]string{{"cat", path}, {"ls", path}, {"sh", "-c", "echo >>" + path}} {
				escaped := exec.CommandContext(t.Context(), command[0], command[1:]...)
				id := uint32(first)
				escaped.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
				if out, err := escaped.CombinedOutput(); err == nil || !strings.Contains(strings.ToLower(string(out)), "permission denied") {
					t.Errorf("an escaped process has %s: %s, %v", path, out, err)
				}
			}
		}

		uid := string(awaitPod(t, a, "again", ready).UID)
		must(t, a.Kill9())
		must(t, s.KillSandboxProcess(t.Context(), uid))
		must(t, a.Start())
		await(t, func() error {
			if now := containersOf(t, s, "again", "c"); now[len(now)-1].Id == c.Id {
				return fmt.Errorf("the container of the lost sandbox is the newest one")
			}
			return nil
		})
		awaitLogs(t, s, up(t, s, "again", "c").Id, strings.Repeat(idMap(first), 2))
		must(t, a.Remove("again.yaml"))
		forgotten(t, a, "again")
		must(t, a.Write("next.yaml", manifest(s, "next", ownUsers+"containers: [{name: c, image: HELLO, args: [sleep]}]")))
		up(t, s, "next", "c")
		if got := rangeOf(t, a, "next"); got != first {
			t.Errorf("the range of the removed pod is not given again: %d, want %d", got, first)
		}
		must(t, a.Remove("own.yaml"))
		forgotten(t, a, "own")
	})
}

// A pod's range has the configured length.
func TestUserNamespaces_IDsPerPod(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) { a.Config["userNamespaces"] = map[string]any{"idsPerPod": 131072} })
	must(t, a.Write("own.yaml", manifest(s, "own", ownUsers+"containers: [{name: c, image: HELLO, args: [cat, /proc/self/uid_map, --, sleep]}]")))
	awaitLogs(t, s, up(t, s, "own", "c").Id, fmt.Sprintf("%10d %10d %10d\n", 0, 131072, 131072))
}
