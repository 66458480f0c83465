//go:build e2e

package e2e

import (
	"context"
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

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// terminal is a new terminal of that many columns, and the end of it that a person sits at.
func terminal(t *testing.T, columns uint16) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	conn, err := person.SyscallConn() // by its descriptor, since a read in progress would keep it open
	must(t, err)
	number := 0
	must(t, conn.Control(func(fd uintptr) {
		err = errors.Join(unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0),
			unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
		var err2 error
		number, err2 = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		err = errors.Join(err, err2)
	}))
	must(t, err)
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	return program, person
}

// startDevOnTerminal starts it as a shell would, with the terminal for its own.
func startDevOnTerminal(t *testing.T, columns uint16) (d *devRun, person *os.File) {
	t.Helper()
	program, person := terminal(t, columns)
	d = &devRun{t: t, cmd: devCommand(t, stack.Containerd2)}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = program, program, program
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	read := make(chan struct{})
	d.start(func() { <-read })
	must(t, program.Close())
	go func() {
		_, _ = io.Copy(&d.out, person) // until the terminal has no other end
		close(read)
	}()
	return d, person
}

// On a terminal a step in progress shows in one line; Ctrl-C is a key.
func TestDevOnATerminal(t *testing.T) {
	before := machine(t)
	const columns = 60
	d, person := startDevOnTerminal(t, columns)
	d.printed(`End it: +Ctrl-C`)
	_, err := person.Write([]byte{3})
	must(t, err)
	d.ends(0, 0)
	d.printed(`clean-up: the machine is as it was`)
	must(t, person.Close())
	asBefore(t, before)
	shown := 0
	for _, piece := range strings.Split(d.out.String(), "\r\x1b[K") {
		if strings.HasPrefix(piece, "      ...  ") && !strings.Contains(piece, "\n") {
			shown++
			if n := len([]rune(piece)); n >= columns {
				t.Errorf("a line of %d columns cannot be wiped: %q", n, piece)
			}
		}
	}
	if shown < 5 {
		t.Errorf("it shows %d steps under way", shown)
	}
}

// A second Ctrl-C does not wait for pods that take their time; nothing is left all the same.
func TestDevIsInterruptedTwice(t *testing.T) {
	before := machine(t)
	d, person := startDevOnTerminal(t, 80)
	d.printed(`End it: +Ctrl-C`)
	must(t, os.WriteFile(d.folder()+"/manifests/stubborn.yaml", []byte(`{apiVersion: v1, kind: Pod, metadata: {name: stubborn},
		spec: {containers: [{name: c, image: "playlet.local/hello:1", args: [ignore-term]}]}}`), 0o644))
	d.printed(`default/` + onNode("stubborn") + `  Running  1/1 ready`)
	for _, seen := range []string{"", `stopping: pods`} {
		d.printed(seen)
		_, err := person.Write([]byte{3})
		must(t, err)
	}
	d.ends(0, 0)
	d.printed(`clean-up: the machine is as it was`)
	if strings.Contains(d.out.String(), "stopping: pods, agent, containerd") {
		t.Error("it has waited for the pod")
	}
	must(t, person.Close())
	asBefore(t, before)
}

// A closed terminal, or an output without a reader, ends it like Ctrl-C.
func TestDevEndsWithWhatItPrintsTo(t *testing.T) {
	before := machine(t)
	d, person := startDevOnTerminal(t, 80)
	d.printed(`End it: +Ctrl-C`)
	must(t, person.Close())
	d.ends(0, 0)
	asBefore(t, before)

	for _, lines := range []string{"1", "3"} {
		cmd := devCommand(t, stack.Containerd2)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		head := exec.CommandContext(ctx, "sh", append([]string{"-c", `n=$1; shift; "$@" | head -n "$n"`, "sh", lines}, cmd.Args...)...)
		head.Env = cmd.Env
		out, err := head.Output()
		if err != nil || fmt.Sprint(strings.Count(string(out), "\n")) != lines {
			t.Errorf("%v: %v\n%s", head.Args, err, out)
		}
		asBefore(t, before)
	}
}

// A user's folder keeps the user's manifests, including a changed sample.
func TestDevKeepsTheUsersManifests(t *testing.T) {
	machine(t) // makes the folder for temporary files
	dir := filepath.Join(devTemp(), "mine")
	must(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	before := machine(t)
	startDev(t, stack.Containerd1, "--once", "--dir="+dir).ends(0, 0)
	asBefore(t, before)

	d := startDev(t, stack.Containerd2, "--dir="+dir)
	d.printed(`End it: +Ctrl-C`)
	sample := filepath.Join(dir, "manifests/hello.yaml")
	text, err := os.ReadFile(sample)
	must(t, err)
	must(t, os.WriteFile(sample, []byte(strings.ReplaceAll(string(text), "name: hello", "name: mine")), 0o644))
	d.printed(`default/` + onNode("mine") + `  Running  1/1 ready`)
	d.ends(syscall.SIGINT, 0)
	after := slices.Sorted(slices.Values(append([]string{"file " + dir + "/manifests", "file " + sample}, before...)))
	asBefore(t, after)

	once := startDev(t, stack.Containerd2, "--once", "--dir="+dir)
	once.ends(0, 1)
	once.printed(`there is nothing to check: ` + dir + `/manifests holds manifests of yours and no sample pod`)
	asBefore(t, after)

	d = startDev(t, stack.Containerd2, "--dir="+dir)
	d.printed(`pod hello: none: there are manifests of yours`)
	d.printed(`default/` + onNode("mine") + `  Running  1/1 ready`)
	d.ends(syscall.SIGKILL, -1)
	startDev(t, stack.Containerd2, "--clean").ends(0, 0)
	asBefore(t, after)
}

// Missing programs are named with their packages, and nothing is created; impossible requests are rejected in one line.
func TestDevSaysWhatItLacks(t *testing.T) {
	before := machine(t)
	for _, c := range []struct{ args, want string }{
		{"--dir=/proc/version", "playlet: /proc/version is not a folder\n"},
		{"--dir=/" + strings.Repeat("x", 100), "playlet: the path /xxx"},
		{"--nonsense", "playlet: unknown flag: --nonsense (playlet dev --help lists the flags)\n"},
		{"nonsense", "playlet: playlet dev takes no arguments, and \"nonsense\" is one (playlet dev --help)\n"},
	} {
		d := startDev(t, stack.Containerd2, c.args)
		d.ends(0, 1)
		if !strings.Contains(d.out.String(), c.want) {
			t.Errorf("%s: it says %q, want %q", c.args, d.out.String(), c.want)
		}
		asBefore(t, before)
	}
	if path, err := exec.LookPath("containerd"); err == nil {
		t.Skipf("what it says without containerd is not tried: %s is there", path)
	}
	d := &devRun{t: t, cmd: devCommand(t, stack.Containerd2)}
	d.cmd.Args = d.cmd.Args[:2] // no --programs
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	d.start(func() {})
	d.ends(0, 1)
	d.printed(`looked for containerd, containerd-shim-runc-v2.* in /usr/sbin, /usr/bin`)
	d.printed(`playlet: missing: containerd, containerd-shim-runc-v2.*\. ` +
		`To have it downloaded: playlet dev --install; to install it: apt-get install containerd.*\n$`)
	asBefore(t, before)
}
