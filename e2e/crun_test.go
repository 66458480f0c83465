//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moby/sys/mountinfo"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// The sixteen steps of a pod's life with crun, a second handler of the runtime with its own error messages. Debian's runtime uses
// it, as the newer one writes bundles of a version that Debian's crun does not know.
func TestTheLifeOfContainersOfCrun(t *testing.T) {
	withoutHybrid(t)
	crun, err := install.LocateCrun()
	must(t, err)
	s := stack.Start(t, stack.Options{Runtime: stack.Containerd1, Second: crun.Program, RuntimeEnv: crun.Env()})
	objects := filepath.Join(t.TempDir(), "objects")
	putObject(t, objects, "class.yaml",
		"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: crun}\nhandler: "+stack.SecondHandler+"\n")
	a := agentWith(t, s, func(a *stack.Agent) { unhurried(a); a.Args = append(a.Args, "--object-dir="+objects) })
	w := &world{s: s, a: a, dir: t.TempDir(), class: "crun"}
	w.steps(t, []step{
		{"sandbox", crunSandbox},
		{"exec", crunExec},
		{"exec of nothing", crunExecNothing},
		{"exec of no program", crunExecNoProgram},
		{"memory", crunMemory},
	})
}

// withoutHybrid removes the hierarchy of version 2 beside those of version 1 during the test. Debian's crun 1.8.1 rejects a
// machine that has it with controllers.
func withoutHybrid(t *testing.T) {
	t.Helper()
	const unified = "/sys/fs/cgroup/unified"
	mounts, err := mountinfo.GetMounts(nil)
	must(t, err)
	for _, m := range mounts {
		if m.Mountpoint == unified && m.FSType == "cgroup2" {
			must(t, syscall.Unmount(unified, 0))
			t.Cleanup(func() {
				must(t, syscall.Mount("cgroup2", unified, "cgroup2", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""))
			})
			return
		}
	}
}

// Every pod runs with crun; its errors are in the status, and are classified.
func crunSandbox(t *testing.T, w *world) {
	all, err := w.s.Sandboxes(t.Context())
	must(t, err)
	for _, one := range all {
		if one.RuntimeHandler != stack.SecondHandler {
			t.Errorf("the sandbox of %s is by %q", one.Metadata.Name, one.RuntimeHandler)
		}
	}
	pod := awaitPod(t, w.a, "missing", waitsFor("CrashLoopBackOff"))
	const words = "executable file `/not/there` not found"
	if end := statusOf(pod, "c").LastTerminationState.Terminated; end == nil || !strings.Contains(end.Message, words) {
		t.Errorf("a command that is not there: %+v, want crun's %q", end, words)
	}
	out, _, code := playlet(t, "explain", "--admin-socket="+w.a.AdminSocket, "missing")
	if want := `container c: its command "/not/there" is not in the image`; code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("it is explained with code %d and %q, want %q", code, out, want)
	}
}

func (w *world) exec(t *testing.T, command ...string) (stdout, stderr string, code int) {
	t.Helper()
	return playlet(t, append([]string{"exec", "--admin-socket=" + w.a.AdminSocket, "crash", "--"}, command...)...)
}

func crunExec(t *testing.T, w *world) {
	if out, errs, code := w.exec(t, "/hello", "args", "good day", "--", "exit", "3"); out != "good day\n" || code != 3 {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
}

// A command that is not there ends with 127, whatever words crun has for it.
func crunExecNothing(t *testing.T, w *world) {
	const words = `there is no command "/none" in the container`
	if _, errs, code := w.exec(t, "/none"); code != 127 || !strings.Contains(errs, words) {
		t.Errorf("code %d, %q, want 127 and %q", code, errs, words)
	}
}

// An existing file that is no program exits with 126.
func crunExecNoProgram(t *testing.T, w *world) {
	if _, errs, code := w.exec(t, "/etc"); code != 126 || !strings.Contains(errs, "/etc") {
		t.Errorf("code %d, %q, want 126", code, errs)
	}
}

// The limit of memory that crun has set is the one by which the container is killed.
func crunMemory(t *testing.T, w *world) {
	must(t, w.a.Write("hog.yaml", manifest(w.s, "hog", `
runtimeClassName: crun
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [alloc, "200", --, sleep], resources: {limits: {memory: 32Mi}}}]`)))
	pod := awaitPod(t, w.a, "hog", inPhase(corev1.PodFailed))
	if end := statusOf(pod, "c").State.Terminated; end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("the container: %+v", end)
	}
	must(t, w.a.Remove("hog.yaml"))
	forgotten(t, w.a, "hog")
}
