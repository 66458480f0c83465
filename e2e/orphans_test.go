//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// orphans are the pods of TestWhatNobodyWants, by name.
var orphans = map[string]string{
	"stays": `
terminationGracePeriodSeconds: 60
containers: [{name: c, image: HELLO, args: [sleep, '--', append, /data/stays, ended], DATA}]`,
	"goes": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, args: [sleep, '--', append, /data/goes, ended], DATA,
   lifecycle: {preStop: {exec: {command: [/hello, append, /data/goes, hook]}}}}`,
	"changes": `
terminationGracePeriodSeconds: 60
containers: [{name: c, image: HELLO, args: [slow-term, '0', '1', '--', append, /data/changes, ended], DATA}]`,
	"done": `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [exit, '0']}]`,
	"crash": `
terminationGracePeriodSeconds: 5
containers: [{name: c, image: HELLO, args: [check-file, /data/may, '--', sleep], DATA}]`,
	"lost": `
terminationGracePeriodSeconds: 2
containers: [{name: c, image: HELLO, args: [sleep]}]`,
}

// Objects that no source desires: pods whose manifests were removed while the agent was away, folders, dead sandboxes. Other
// clients' objects are not touched.
func TestWhatNobodyWants(t *testing.T) {
	for _, runtime := range stack.Runtimes {
		t.Run(string(runtime), func(t *testing.T) {
			t.Parallel() // most of the time the collector is awaited, which comes once a minute
			s := stack.Start(t, stack.Options{Runtime: runtime})
			w := &world{s: s, a: agentWith(t, s, quick), dir: t.TempDir()}
			foreign := newForeigners(t, s)
			for name, spec := range orphans {
				must(t, w.a.Write(name+".yaml", withFolder(s, name, w.dir, spec)))
			}
			stays := w.live(t)

			must(t, w.a.Kill9())
			left := w.leaveBehind(t)
			must(t, w.a.Remove("goes.yaml"))
			must(t, w.a.Remove("done.yaml"))
			spec := strings.Replace(orphans["changes"], "[slow-term, '0', '1', '--', append, /data/changes, ended]",
				"[append, /data/changes, begun, '--', sleep]", 1)
			must(t, w.a.Write("changes.yaml", withFolder(s, "changes", w.dir, spec)))
			w.startUnheard(t)

			forgotten(t, w.a, "goes")
			awaitFile(t, w.file("goes"), "hook\nended\n")
			awaitPod(t, w.a, "changes", ready)
			awaitFile(t, w.file("changes"), "ended\nbegun\n")
			awaitNone(t, s, "goes", "done")
			left.awaitSwept(t, w)
			w.awaitCollected(t)
			left.awaitLogs(t, w)

			foreign.check(t)
			if now := up(t, s, "stays", "c"); now.Id != stays.Id {
				t.Error("the container of a pod that was wanted all the time is another")
			}
			if _, err := os.Stat(w.file("stays")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it was ended: %v", err)
			}
			foreign.remove(t)
			for _, name := range []string{"stays", "changes", "crash", "lost"} {
				must(t, w.a.Remove(name+".yaml"))
			}
			cleared(t, s, w.a)
		})
	}
}

// live waits until the pods run, and gives two of them a past: dead containers, dead sandboxes.
func (w *world) live(t *testing.T) (stays *runtimeapi.Container) {
	t.Helper()
	for _, name := range []string{"stays", "goes", "changes", "lost"} {
		awaitPod(t, w.a, name, ready)
	}
	awaitOver(t, w.a, "done", corev1.PodSucceeded)
	for attempt := range uint32(2) {
		must(t, w.s.KillSandboxProcess(t.Context(), up(t, w.s, "lost", "c").Labels[stack.UIDLabel]))
		await(t, func() error {
			if c := up(t, w.s, "lost", "c"); c.Metadata.Attempt != attempt+1 {
				return fmt.Errorf("container of attempt %d", c.Metadata.Attempt)
			}
			return nil
		})
	}
	awaitPod(t, w.a, "crash", func(p *corev1.Pod) error {
		if c := statusOf(p, "c"); c.RestartCount < 3 {
			return fmt.Errorf("%d restarts", c.RestartCount)
		}
		return nil
	})
	w.allow(t, "may")
	awaitPod(t, w.a, "crash", ready)
	return up(t, w.s, "stays", "c")
}

// startUnheard starts the agent without knowledge of the desired pods: the manifests cannot be read, and the last good ones are
// lost. Nothing may be ended then. It ends when they can be read again.
func (w *world) startUnheard(t *testing.T) {
	t.Helper()
	aside := w.a.ManifestDir + ".aside"
	must(t, os.RemoveAll(filepath.Join(w.a.RootDir, "playlet/file-source")))
	must(t, os.Rename(w.a.ManifestDir, aside))
	must(t, os.Symlink(w.a.ManifestDir, w.a.ManifestDir)) // it leads to itself
	must(t, w.a.Start())
	unhealthy(t, w.a, "[+]runtime ok", "[-]sources failed", "not heard yet: sources/file")
	for _, name := range []string{"stays", "goes", "changes"} {
		up(t, w.s, name, "c")
	}
	// In one step: a missing folder would mean that no pods are desired.
	must(t, os.Symlink(aside, w.a.ManifestDir+".new"))
	must(t, os.Rename(w.a.ManifestDir+".new", w.a.ManifestDir))
}

// awaitNone waits until the runtime has nothing of these pods.
func awaitNone(t *testing.T, s *stack.Stack, names ...string) {
	t.Helper()
	await(t, func() error {
		podSandboxes, err := s.Sandboxes(t.Context())
		if err != nil {
			return err
		}
		for _, name := range names {
			for _, b := range podSandboxes {
				if b.Labels["io.kubernetes.pod.name"] == onNode(name) {
					return fmt.Errorf("pod %s still has a sandbox: %v", name, b)
				}
			}
			if all := containersOf(t, s, name); len(all) > 0 {
				return fmt.Errorf("pod %s still has containers: %v", name, all)
			}
		}
		return nil
	})
}

// awaitCollected waits until of each container only the newest dead one is there, and of the sandboxes those in use. Logs
// go with their containers.
func (w *world) awaitCollected(t *testing.T) {
	t.Helper()
	for name, attempts := range map[string]uint32{"crash": up(t, w.s, "crash", "c").Metadata.Attempt, "lost": 2} {
		await(t, func() error {
			all := containersOf(t, w.s, name)
			if len(all) != 2 || all[0].Metadata.Attempt != attempts-1 || all[1].Metadata.Attempt != attempts ||
				all[1].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				return fmt.Errorf("pod %s has containers %v", name, all)
			}
			podSandboxes, err := w.s.SandboxesOf(t.Context(), all[0].Labels[stack.UIDLabel])
			if err != nil {
				return err
			}
			for _, b := range podSandboxes {
				if b.Id != all[0].PodSandboxId && b.Id != all[1].PodSandboxId {
					return fmt.Errorf("pod %s has sandbox %v", name, b)
				}
			}
			logs, err := filepath.Glob(filepath.Join(w.a.PodLogsDir, "default_"+onNode(name)+"_*", "c", "*"))
			if err != nil || len(logs) != 2 {
				return fmt.Errorf("pod %s has logs %v, %v", name, logs, err)
			}
			return nil
		})
	}
}

// leftovers are folders of unknown pods.
type leftovers struct {
	plain, mounted, deep string // UIDs
	outside              string // a folder that is none of theirs
}

const emptyDirs = "volumes/kubernetes.io~empty-dir"

// leaveBehind creates folders of removed pods: a plain one with a link that leads out of it, one with a mount in its volume, one
// with a mount elsewhere. It also creates a folder that resembles none.
func (w *world) leaveBehind(t *testing.T) leftovers {
	t.Helper()
	l := leftovers{plain: "0000-plain", mounted: "0000-mounted", deep: "0000-deep", outside: w.file("outside")}
	must(t, os.Mkdir(l.outside, 0o755))
	must(t, os.WriteFile(filepath.Join(l.outside, "file"), []byte("precious"), 0o644))
	for _, uid := range []string{l.plain, l.mounted, l.deep} {
		must(t, os.MkdirAll(w.podFolder(uid, emptyDirs, "v"), 0o750))
		must(t, os.MkdirAll(w.podFolder(uid, "containers/c/d"), 0o750))
		must(t, os.WriteFile(w.podFolder(uid, "etc-hosts"), nil, 0o644))
	}
	must(t, os.WriteFile(w.podFolder(l.plain, emptyDirs, "v", "file"), []byte("x"), 0o644))
	must(t, os.Symlink(l.outside, w.podFolder(l.plain, emptyDirs, "v", "link")))
	for _, point := range l.points(w) {
		must(t, syscall.Mount(l.outside, point, "", syscall.MS_BIND, ""))
		t.Cleanup(func() { _ = syscall.Unmount(point, syscall.MNT_DETACH) }) // it is when all goes well
	}
	must(t, os.WriteFile(w.podFolder("a-file"), nil, 0o644))
	for _, name := range []string{"default_left_" + l.plain, "not-a-pod"} {
		must(t, os.MkdirAll(filepath.Join(w.a.PodLogsDir, name, "c"), 0o755))
		must(t, os.WriteFile(filepath.Join(w.a.PodLogsDir, name, "c/0.log"), []byte("x"), 0o644))
	}
	return l
}

func (w *world) podFolder(names ...string) string {
	return filepath.Join(append([]string{w.a.RootDir, "pods"}, names...)...)
}

// points are where something is mounted, by UID.
func (l leftovers) points(w *world) map[string]string {
	return map[string]string{
		l.mounted: w.podFolder(l.mounted, emptyDirs, "v"),
		l.deep:    w.podFolder(l.deep, "containers/c/d"),
	}
}

// awaitSwept waits until the removable folders are removed. The other one is reported, and removed after its unmount.
func (l leftovers) awaitSwept(t *testing.T, w *world) {
	t.Helper()
	awaitGone(t, w.podFolder(l.plain))
	for uid, point := range l.points(w) {
		awaitLogged(t, w.a, uid, point, "still mounted")
		awaitFile(t, filepath.Join(point, "file"), "precious")
	}
	awaitFile(t, filepath.Join(l.outside, "file"), "precious")
	for _, point := range l.points(w) {
		must(t, syscall.Unmount(point, 0))
	}
	for uid := range l.points(w) {
		awaitGone(t, w.podFolder(uid))
	}
	awaitFile(t, filepath.Join(l.outside, "file"), "precious")
	must(t, os.Remove(w.podFolder("a-file"))) // it belongs to no pod, and stays
}

func (l leftovers) awaitLogs(t *testing.T, w *world) {
	t.Helper()
	awaitGone(t, filepath.Join(w.a.PodLogsDir, "default_left_"+l.plain))
	must(t, os.Remove(filepath.Join(w.a.PodLogsDir, "not-a-pod/c/0.log"))) // which stays likewise
	must(t, os.RemoveAll(filepath.Join(w.a.PodLogsDir, "not-a-pod")))
}

func awaitGone(t *testing.T, path string) {
	t.Helper()
	await(t, func() error {
		_, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("%s is still there, %v", path, err)
	})
}
