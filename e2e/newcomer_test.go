//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// newcomer is a machine as required by README: Debian with Go, git and gcc, in a mount namespace with it as the root. Processes,
// network and cgroups are the test's.
type newcomer struct {
	t     *testing.T
	root  string // of its files, as the test sees them
	init  int    // the process that keeps the namespace
	parts install.Machine
}

// home is where a newcomer is, and clone where the project was cloned to.
const (
	home  = "/root"
	clone = home + "/playlet"
	// newcomersPath is $PATH after the README's line for it.
	newcomersPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"
)

// setUp creates the newcomer's machine, in a private mount namespace. Go comes with its caches: without, each run would compile
// for minutes. The first argument is the root; then come pairs of a source and a mount point. -n keeps mount from writing into
// /run.
const setUp = `set -e
root=$1; shift
mount -n --bind "$root" "$root"
cd "$root"
mount -n -t proc proc proc
mount -n --rbind /sys sys
mount -n --rbind /dev dev
mount -n -t tmpfs -o mode=755 tmpfs run
while [ $# -gt 0 ]; do mkdir -p "./$2"; mount -n --bind "$1" "./$2"; shift 2; done
mkdir .old
pivot_root . .old
umount -n -l /.old
rmdir /.old
mount -n --make-rshared /
echo ready
exec sleep infinity`

// startNewcomer makes the machine and clones the project in it.
func startNewcomer(t *testing.T) *newcomer {
	t.Helper()
	parts, err := install.LocateMachine()
	must(t, err)
	m := &newcomer{t: t, root: filepath.Join(isolate.Dir(), "newcomer"), parts: parts}
	must(t, os.Mkdir(m.root, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(m.root)) })
	outside(t, "tar", "-C", m.root, "-xf", parts.Tarball)
	origin := outside(t, "git", "rev-parse", "--path-format=absolute", "--git-common-dir")
	hold := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", setUp, "sh", m.root,
		outside(t, "go", "env", "GOROOT"), "/usr/local/go",
		outside(t, "go", "env", "GOMODCACHE"), home+"/go/pkg/mod",
		outside(t, "go", "env", "GOCACHE"), home+"/.cache/go-build",
		origin, "/srv/playlet.git")
	var said processOutput
	hold.Stdout, hold.Stderr = &said, &said
	must(t, hold.Start())
	t.Cleanup(func() {
		_ = hold.Process.Kill() // with it the namespace ends, and every mount of it
		_ = hold.Wait()         // killed
	})
	m.init = hold.Process.Pid
	await(t, func() error {
		if said.String() == "ready\n" {
			return nil
		}
		return errors.New(said.String())
	})
	m.clone()
	return m
}

// outside runs a program of the machine that the tests run on.
func outside(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if args[0] == "git" {
		cmd.Args = append([]string{"git", "-c", "safe.directory=*"}, args[1:]...)
	}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &problems)
	}
	return strings.TrimSpace(string(out))
}

// clone copies the project to the newcomer's machine: the commit, and the changes since.
func (m *newcomer) clone() {
	m.t.Helper()
	commit, top := outside(m.t, "git", "rev-parse", "HEAD"), outside(m.t, "git", "rev-parse", "--show-toplevel")
	m.runs("git -c safe.directory='*' clone -q /srv/playlet.git playlet && cd playlet && git checkout -q "+commit, 0)
	list := func(which ...string) []string {
		out := outside(m.t, append([]string{"git", "-C", top, "ls-files", "-z", "--exclude-standard"}, which...)...)
		return strings.FieldsFunc(out, func(r rune) bool { return r == 0 })
	}
	for _, name := range list("-d") {
		must(m.t, os.Remove(m.path(clone, name)))
	}
	for _, name := range list("-m", "-o") {
		if data, err := os.ReadFile(filepath.Join(top, name)); err == nil {
			must(m.t, os.MkdirAll(filepath.Dir(m.path(clone, name)), 0o755))
			must(m.t, os.WriteFile(m.path(clone, name), data, 0o755))
		}
	}
}

// path returns the test's path of a file of the machine, without its mounts.
func (m *newcomer) path(elements ...string) string {
	return filepath.Join(append([]string{m.root}, elements...)...)
}

func (m *newcomer) write(name, text string) {
	m.t.Helper()
	must(m.t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	must(m.t, os.WriteFile(m.path(name), []byte(text), 0o644))
}

// command is a line for the machine's shell, in the newcomer's home. It is the process itself, not a child of it.
func (m *newcomer) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", m.init), "sh", "-c", `cd && exec "$@"`, "sh"}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + clone + "/bin:" + newcomersPath, "TERM=xterm", "LC_ALL=C.UTF-8",
		"GOTOOLCHAIN=local", "GOSUMDB=off", "GOPROXY=file://" + home + "/go/pkg/mod/cache/download"}
	return cmd
}

// shell is command with a line of shell.
func (m *newcomer) shell(ctx context.Context, line string) *exec.Cmd {
	if !strings.ContainsAny(line, ";&|<>'$(\n") {
		line = "exec " + line // so that a signal is for the command
	}
	return m.command(ctx, "sh", "-c", line)
}

// runs runs a line to its end, and returns its output, stderr last.
func (m *newcomer) runs(line string, code int) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), waitLimit)
	defer cancel()
	cmd := m.shell(ctx, line)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		m.t.Fatalf("%s: %v, want exit code %d\n%s%s", line, err, code, &out, &problems)
	}
	return out.String() + problems.String()
}

// typist is a person at a terminal with a running program.
type typist struct {
	t      *testing.T
	cmd    *exec.Cmd
	person *os.File
	out    processOutput
	read   int // so much of out was looked at
	done   chan struct{}
}

// typing starts a program on a terminal of its own.
func typing(t *testing.T, cmd *exec.Cmd) *typist {
	t.Helper()
	program, person := terminal(t, 120)
	y := &typist{t: t, cmd: cmd, person: person, done: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	must(t, program.Close())
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := person.Read(buf)
			_, _ = y.out.Write(buf[:n]) // into memory
			if err != nil {
				break
			}
		}
		_ = cmd.Wait() // how it ended is asked of cmd.ProcessState
		close(y.done)
	}()
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // it has usually ended
		<-y.done
		must(t, person.Close())
		if t.Failed() {
			t.Logf("on the terminal of %v:\n%s", cmd.Args, y.out.String())
		}
	})
	return y
}

func (y *typist) key(keys string) {
	y.t.Helper()
	_, err := y.person.WriteString(keys)
	must(y.t, err)
}

// sees waits for words after those that were seen before.
func (y *typist) sees(words string) {
	y.t.Helper()
	await(y.t, func() error {
		text := y.out.String()[y.read:]
		if i := strings.Index(text, words); i >= 0 {
			y.read += i + len(words)
			return nil
		}
		select {
		case <-y.done:
			y.t.Fatalf("it has ended without %q", words)
		default:
		}
		return fmt.Errorf("there is no %q", words)
	})
}

// ends waits for the end of the program.
func (y *typist) ends(code int) {
	y.t.Helper()
	select {
	case <-y.done:
	case <-time.After(waitLimit):
		y.t.Fatal("it does not end")
	}
	if got := y.cmd.ProcessState.ExitCode(); got != code {
		y.t.Errorf("it ended with %d, want %d", got, code)
	}
}
