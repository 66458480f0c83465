//go:build e2e

package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// A container's output is printed: of its latest run, of the one before, from the end, and as it comes.
func TestLogs(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		dir := t.TempDir()
		at := "--admin-socket=" + a.AdminSocket
		must(t, a.Write("crash.yaml", withFolder(s, "crash", dir, `
containers: [{name: c, image: HELLO, args: [args, one, two, '--', check-file, /data/go, '--', args, three, '--', sleep], DATA}]`)))
		must(t, a.Write("two.yaml", manifest(s, "two", `
terminationGracePeriodSeconds: 1
initContainers: [{name: first, image: HELLO, args: [args, from-init]}]
containers:
- {name: a, image: HELLO, args: [args, from-a, '--', sleep]}
- {name: b, image: HELLO, args: [args, from-b, '--', sleep]}`)))
		awaitPod(t, a, "crash", waitsFor("CrashLoopBackOff"))

		logs := func(want string, args ...string) string {
			t.Helper()
			out, errs, code := playlet(t, append(append([]string{"logs"}, args...), at)...)
			if code != 0 || out != want {
				t.Errorf("logs %v: %q, want %q; code %d, %s", args, out, want, code, errs)
			}
			return errs
		}
		refused := func(want string, args ...string) {
			t.Helper()
			_, errs, code := playlet(t, append(append([]string{"logs"}, args...), at)...)
			if code != 1 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("logs %v: code %d, %q, want %q", args, code, errs, want)
			}
		}
		logs("one\ntwo\n", "crash") // it waits for its next start: that is of its latest run
		put(t, filepath.Join(dir, "go"), "")
		awaitPod(t, a, "crash", ready)
		logs("one\ntwo\nthree\n", onNode("crash"), "-n", "default")
		logs("one\ntwo\n", "crash", "--previous")
		logs("three\n", "crash", "--tail=1")

		awaitPod(t, a, "two", ready)
		if note := logs("from-a\n", "two"); !strings.Contains(note, `container "a" of a, b, first`) {
			t.Errorf("of a pod with several containers it says %q", note)
		}
		logs("from-b\n", "two", "-c", "b")
		logs("from-init\n", "two", "-c", "first")
		refused(`no container "x"; it has a, b, first`, "two", "-c", "x")
		refused("no earlier run", "two", "--previous")
		refused(`there is no pod "none"`, "none")

		follow(t, a, at)
		must(t, a.Remove("crash.yaml"))
		cleared(t, s, a)
	})
}

// follow reads the log of a container to its end, when the pod is removed.
func follow(t *testing.T, a *stack.Agent, at string) {
	t.Helper()
	cmd := exec.Command(program(), "logs", "-f", "two", "-c", "b", at)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "from-b" {
		t.Errorf("followed: %q, %v", lines.Text(), lines.Err())
	}
	must(t, a.Remove("two.yaml"))
	for lines.Scan() {
		t.Errorf("after that: %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
