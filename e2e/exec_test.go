//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// A command in a container: its output and exit code, its input, its terminal; and an impossible command reports the reason.
func TestExec(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		must(t, a.Write("web.yaml", manifest(s, "web", withTool(t, `
terminationGracePeriodSeconds: 1
restartPolicy: Never
containers:
- {name: app, image: HELLO, args: [sleep], TOOL}
- {name: done, image: HELLO, args: [exit, '4']}`, t.TempDir()))))
		awaitPod(t, a, "web", func(p *corev1.Pod) error { // the agent's word counts, which comes after the runtime's
			if statusOf(p, "done").State.Terminated == nil || statusOf(p, "app").State.Running == nil {
				return fmt.Errorf("the containers are %+v", p.Status.ContainerStatuses)
			}
			return nil
		})
		socket := "--admin-socket=" + a.AdminSocket
		run := func(stdin string, args ...string) (out, errs string, code int) {
			t.Helper()
			cmd := exec.Command(program(), append([]string{"exec", socket}, args...)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil {
				t.Fatal(err)
			}
			return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
		}
		tool := []string{"--", toolPath, "tool"}
		with := func(before []string, args ...string) []string { return append(append(before, tool...), args...) }

		out, errs, code := run("", with([]string{"web", "-c", "app"}, "say", "to stdout", "to stderr", "3")...)
		if code != 3 || out != "to stdout\n" || errs != "to stderr\n" {
			t.Errorf("code %d, %q, %q", code, out, errs)
		}
		long := strings.Repeat("what comes in goes out\n", 50_000)
		if out, errs, code = run(long, with([]string{"-i", onNode("web"), "-n", "default", "-c", "app"}, "cat")...); code != 0 ||
			out != long || errs != "" {
			t.Errorf("code %d, %d bytes of %d, %q", code, len(out), len(long), errs)
		}
		if out, errs, code = run("not passed on", with([]string{"web"}, "cat")...); code != 0 || out != "" || !strings.Contains(errs, `container "app" of app, done`) {
			t.Errorf("without -i: code %d, %q, %q", code, out, errs)
		}
		for _, c := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"web", "-c", "app", "--", "/none"}, 127, "/none"},
			{[]string{"web", "-c", "app", "--", "/data"}, 126, "/data"},
			{[]string{"web", "-c", "done", "--", "/hello"}, 1, `container "done" of pod "web-node0" does not run: it exited with code 4`},
			{[]string{"web", "-c", "x", "--", "/hello"}, 1, `no container "x"; it has app, done`},
			{[]string{"none", "--", "/hello"}, 1, `there is no pod "none"`},
			{[]string{"web", "ls"}, 1, `a command comes after "--": playlet exec web -- ls`},
			{[]string{"web"}, 1, "which command?"},
		} {
			if _, errs, code := run("", c.args...); code != c.code || !strings.Contains(errs, c.want) ||
				strings.Count(errs, "\n") != 1 {
				t.Errorf("%v: code %d, %q, want %d and %q", c.args, code, errs, c.code, c.want)
			}
		}
		inTerminal(t, socket)
		dropped(t, s, socket)
		killedMeanwhile(t, s, a, socket)
		must(t, a.Remove("web.yaml"))
		cleared(t, s, a)
	})
}

// inTerminal runs a command with a terminal by the admin socket.
func inTerminal(t *testing.T, socket string) {
	t.Helper()
	withTerminal(t, exec.Command(program(), "exec", socket, "-it", "web", "-c", "app", "--", toolPath, "tool", "tty"))
	if out, errs, code := playlet(t, "exec", socket, "-t", "web", "-c", "app", "--", toolPath, "tool", "say", "a", "b",
		"0"); code != 0 || out != "a\n" ||
		!strings.Contains(errs, "stdin is not a terminal") {
		t.Errorf("-t without a terminal: code %d, %q, %q", code, out, errs)
	}
}

// withTerminal runs a program that runs the tool "tty" in a container with a terminal, which follows the size of the caller's;
// Ctrl-C goes to the tool.
func withTerminal(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if code := inTerminalUntil(t, cmd, "\x03", "interrupted"); code != 7 {
		t.Errorf("the exit code is %d", code)
	}
}

// inTerminalUntil is withTerminal with other last keys and the tool's response to them; "" if it ends, since the last output of
// an attached container may be lost. It returns the program's exit code.
func inTerminalUntil(t *testing.T, cmd *exec.Cmd, keys, last string) int {
	t.Helper()
	inside, person := terminal(t, 81)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 81, Row: 31}))
	before, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { must(t, inside.Close()) })
	lines := make(chan string, 100)
	go func() {
		for in := bufio.NewScanner(person); in.Scan(); {
			lines <- strings.TrimSpace(in.Text())
		}
	}()
	expect := func(want string) {
		t.Helper()
		late := time.After(waitLimit)
		var seen []string
		for {
			select {
			case line := <-lines:
				if strings.Contains(line, want) {
					return
				}
				seen = append(seen, line)
			case <-late:
				t.Fatalf("there is no %q in %q", want, seen)
			}
		}
	}
	expect("terminal 81x31")
	must(t, unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 55, Row: 22}))
	expect("terminal 55x22")
	_, err = io.WriteString(person, "some text\r")
	must(t, err)
	expect("read some text")
	_, err = io.WriteString(person, keys)
	must(t, err)
	if last != "" {
		expect(last)
	}
	_ = cmd.Wait() // its code is the caller's
	after, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
	must(t, err)
	if after.Lflag != before.Lflag || after.Iflag != before.Iflag || after.Oflag != before.Oflag {
		t.Error("the terminal was left as a raw one")
	}
	return cmd.ProcessState.ExitCode()
}

// dropped kills clients below their commands. All of these end with containerd 2. Containerd 1.6 ends no command for a client
// that has gone, and the CRI has no call that does: with it those end that read their input to its end. The kubelet leaves that
// to the runtime, too.
func dropped(t *testing.T, s *stack.Stack, socket string) {
	t.Helper()
	for i, c := range []struct{ flag, tool, says string }{ // the first hello is the terminal's own
		{"-i", "lines", "hello hello"}, {"-i", "wait", "waiting"}, {"-it", "wait", "waiting"}, {"-it", "tty", "terminal"}, {"", "wait", "waiting"},
	} {
		mark := fmt.Sprintf("dropped%d", i)
		args := []string{"exec", socket, "web", "-c", "app", "--", toolPath, "tool", c.tool, mark}
		if c.flag != "" {
			args = slices.Insert(args, 2, c.flag)
		}
		cmd := exec.Command(program(), args...)
		inside, person := terminal(t, 81)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
		must(t, cmd.Start())
		_, err := io.WriteString(person, "hello\n")
		must(t, err)
		said := bufio.NewScanner(person) // a client that goes before the command has been started leaves it to containerd 2, too
		for seen, want := 0, strings.Count(c.says, " ")+1; seen < want; {
			if !said.Scan() {
				t.Fatalf("%s %s says too little: %v", c.flag, c.tool, said.Err())
			}
			if strings.Contains(said.Text(), strings.Fields(c.says)[seen]) {
				seen++
			}
		}
		if alive(mark) != 1 {
			t.Errorf("%d processes %s %s", alive(mark), c.tool, mark)
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		must(t, errors.Join(inside.Close(), person.Close()))
		if c.tool != "lines" && s.Kind() == stack.Containerd1 {
			continue
		}
		await(t, func() error {
			if alive(mark) != 0 {
				return fmt.Errorf("exec %s %s outlives its client", c.flag, c.tool)
			}
			return nil
		})
	}
}

// alive is how many processes of the tool, in containers of this machine, have this last argument.
func alive(mark string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		words, _ := os.ReadFile(path) // it may have ended
		if bytes.HasPrefix(words, []byte(toolPath+"\x00")) && bytes.HasSuffix(words, []byte("\x00"+mark+"\x00")) {
			n++
		}
	}
	return n
}

// killedMeanwhile kills the agent under a command: that is no success.
func killedMeanwhile(t *testing.T, s *stack.Stack, a *stack.Agent, socket string) {
	t.Helper()
	before, err := s.Containers(t.Context())
	must(t, err)
	cmd := exec.Command(program(), "exec", socket, "web", "-c", "app", "--", toolPath, "tool", "wait")
	out, err := cmd.StdoutPipe()
	must(t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "waiting\n" {
		t.Fatalf("%q, %v, %s", line, err, errs.String())
	}
	must(t, a.Kill9())
	_ = cmd.Wait() // its code is looked at
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(errs.String(), "connection broke") ||
		strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("code %d, %q", code, errs.String())
	}
	must(t, a.Start())
	settled(t, a)
	for _, c := range before {
		if c.Labels["io.kubernetes.container.name"] == "app" && sent(t, s, c.Id).State.String() != "CONTAINER_RUNNING" {
			t.Error("the container does not run any more")
		}
	}
	if _, err := os.Stat(a.AdminSocket); err != nil {
		t.Error(err)
	}
}
