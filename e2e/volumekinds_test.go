//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// podMounts lists the mounts in the pods' folders of an agent, sorted, with stacked mounts repeated.
func podMounts(t *testing.T, a *stack.Agent) []string {
	t.Helper()
	all, err := mountinfo.GetMounts(nil)
	must(t, err)
	var out []string
	for _, m := range all {
		if strings.HasPrefix(m.Mountpoint, filepath.Join(a.RootDir, "pods")+"/") {
			out = append(out, m.Mountpoint)
		}
	}
	slices.Sort(out)
	return out
}

// volumeOf is the path of a pod's volume on the host.
func volumeOf(a *stack.Agent, uid, plugin, volume string, elements ...string) string {
	return filepath.Join(append([]string{a.RootDir, "pods", uid, "volumes", "kubernetes.io~" + plugin, volume}, elements...)...)
}

// Memory is a tmpfs of the given size; fsGroup owns all files, whoever the writer; the downward API's files have the manifest's
// values, and are read-only. All of it outlives the agent, and nothing outlives the pod.
func TestMemoryGroupsAndTheDownwardAPI(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		must(t, a.Write("p.yaml", strings.Replace(manifest(s, "p", `
terminationGracePeriodSeconds: 5
securityContext: {runAsUser: 65534, runAsGroup: 65534, fsGroup: 4711, fsGroupChangePolicy: OnRootMismatch}
initContainers:
- {name: mounts, image: HELLO, args: [cat, /proc/self/mountinfo], volumeMounts: [{name: memory, mountPath: /memory}]}
containers:
- {name: readonly, image: HELLO, args: [write, /info/name, x], volumeMounts: [{name: info, mountPath: /info}]}
- name: c
  image: HELLO
  args: [write, /memory/file, m, --, write, /data/file, d, --, cat, /info/name, --, args, "", --, cat, /info/in/role, --, args, "", --,
    cat, /info/cpu, --, args, "", $(CPU), --, sleep]
  env: [{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]
  resources: {requests: {cpu: 100m}, limits: {cpu: 1500m}}
  volumeMounts: [{name: memory, mountPath: /memory}, {name: data, mountPath: /data}, {name: info, mountPath: /info}]
volumes:
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 3Mi}}
- {name: data, emptyDir: {}}
- name: info
  downwardAPI:
    defaultMode: 0440
    items:
    - {path: name, fieldRef: {fieldPath: metadata.name}}
    - {path: in/role, fieldRef: {fieldPath: "metadata.labels['role']"}}
    - {path: cpu, resourceFieldRef: {containerName: c, resource: requests.cpu, divisor: 1m}}`), "{name: p}", "{name: p, labels: {role: tester}}", 1)))
		c := up(t, s, "p", "c")
		uid := c.Labels[stack.UIDLabel]
		awaitLogs(t, s, c.Id, onNode("p")+"\ntester\n100\n2\n")
		if got := output(t, s, "p", "mounts"); !slices.ContainsFunc(strings.Split(got, "\n"), func(line string) bool {
			return strings.Contains(line, " /memory ") && strings.Contains(line, " - tmpfs ") &&
				strings.Contains(line, "size=3072k")
		}) {
			t.Errorf("no tmpfs of 3 MiB at /memory in %s", got)
		}
		if c := down(t, s, "p", "readonly"); c.ExitCode != 1 {
			t.Errorf("the downward API's files were written: %+v", c)
		}
		for _, file := range []string{volumeOf(a, uid, "empty-dir", "memory", "file"),
			volumeOf(a, uid, "empty-dir", "data", "file")} {
			info, err := os.Stat(file)
			must(t, err)
			if stat := info.Sys().(*syscall.Stat_t); stat.Gid != 4711 || stat.Uid != 65534 {
				t.Errorf("%s belongs to %d:%d", file, stat.Uid, stat.Gid)
			}
		}
		before := podMounts(t, a)
		if len(before) != 2 {
			t.Errorf("mounted are %v", before)
		}
		running := containersOf(t, s, "p", "c")
		must(t, a.Kill9())
		must(t, a.Start())
		settled(t, a)
		awaitPod(t, a, "p", inPhase(corev1.PodRunning))
		if now := podMounts(t, a); !slices.Equal(now, before) {
			t.Errorf("before the agent was killed %v was mounted, now %v", before, now)
		}
		asStarted(t, s, running)
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
		if left := podMounts(t, a); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
	})
}

// An agent that is killed again and again while it mounts leaves nothing twice and nothing behind.
func TestKilledInTheMiddleOfMounting(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		const pods, each, parts = 5, 12, 4
		const total = pods * (each + parts)
		var volumes, mounts []string
		for i := range each {
			volumes = append(volumes, fmt.Sprintf("{name: v%d, emptyDir: {medium: Memory, sizeLimit: 1Mi}}", i))
			mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: /v%d}", i, i))
		}
		for i := range parts {
			mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: /part%d, subPath: a/b}", i, i))
		}
		for i := range pods {
			name := fmt.Sprint("p", i)
			must(t, a.Write(name+".yaml", manifest(s, name, fmt.Sprintf(
				"terminationGracePeriodSeconds: 5\ncontainers: [{name: c, image: HELLO, args: [sleep], volumeMounts: [%s]}]\nvolumes: [%s]",
				strings.Join(mounts, ", "), strings.Join(volumes, ", ")))))
		}
		for round := range 8 {
			// It is struck when there are some mounts more than the last time; where, is chance.
			want := round*total/8 + rand.IntN(each)
			await(t, func() error {
				if n := len(podMounts(t, a)); n < min(want, total) {
					return fmt.Errorf("%d mounts, want %d", n, want)
				}
				return nil
			})
			must(t, a.Kill9())
			must(t, a.Start())
		}
		for i := range pods {
			up(t, s, fmt.Sprint("p", i), "c")
		}
		before := podMounts(t, a)
		if len(before) != total || len(slices.Compact(slices.Clone(before))) != len(before) {
			t.Errorf("%d mounts of %d volumes and parts of them: %v", len(before), total, before)
		}
		must(t, a.Kill9())
		must(t, a.Start())
		settled(t, a)
		if now := podMounts(t, a); !slices.Equal(now, before) {
			t.Errorf("before %v was mounted, now %v", before, now)
		}
		for i := range pods {
			p := awaitPod(t, a, fmt.Sprint("p", i), ready)
			// containerd 1.6 undoes a start if its caller is killed.
			c := statusOf(p, "c").LastTerminationState.Terminated
			if p.Status.Phase != corev1.PodRunning || c != nil && (c.Reason != "StartError" || !strings.Contains(c.Message, "context canceled")) {
				t.Errorf("the status of a pod whose container was not ended: %+v", p.Status)
			}
		}
		for i := range pods {
			must(t, a.Remove(fmt.Sprint("p", i, ".yaml")))
		}
		if n := len(podMounts(t, a)); n > 0 {
			must(t, a.Kill9()) // while it unmounts
			must(t, a.Start())
		}
		done(t, s, a)
		if left := podMounts(t, a); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
		must(t, s.SweepByForce()) // containerd's remains of an interrupted sandbox creation
	})
}
