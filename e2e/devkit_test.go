//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// devRun is a `playlet dev` that was started.
type devRun struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  processOutput
	done chan struct{}
}

// processOutput is the output of a process so far, stdout and stderr.
type processOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *processOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *processOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// devTemp is where runs make their temporary folders.
func devTemp() string { return filepath.Join(isolate.Dir(), "dev") }

// devCommand returns `playlet dev` over one of the runtimes, without the user's settings.
func devCommand(t *testing.T, kind stack.Runtime, args ...string) *exec.Cmd {
	t.Helper()
	parts, err := install.Locate(kind)
	must(t, err)
	machine, err := install.LocateMachine()
	must(t, err)
	dirs := []string{filepath.Dir(parts.Containerd), filepath.Dir(parts.Runc), parts.CNIDir, filepath.Dir(machine.BusyBox)}
	cmd := exec.Command(filepath.Join(isolate.Dir(), "playlet"),
		append([]string{"dev", "--programs=" + strings.Join(dirs, ",")}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + devTemp(), "TMPDIR=" + devTemp()}
	return cmd
}

// startDev starts it with its output in a pipe. The end of the test ends it as Ctrl-C does, if the test does not.
func startDev(t *testing.T, kind stack.Runtime, args ...string) *devRun {
	t.Helper()
	d := &devRun{t: t, cmd: devCommand(t, kind, args...)}
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	d.start(func() {})
	return d
}

// start starts it; read returns when all it has printed was read.
func (d *devRun) start(read func()) {
	d.t.Helper()
	must(d.t, d.cmd.Start())
	d.done = make(chan struct{})
	go func() {
		_ = d.cmd.Wait() // how it ended is asked of cmd.ProcessState
		read()
		close(d.done)
	}()
	d.t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGINT) // it has usually ended; after a failure it removes its pods
		select {
		case <-d.done:
		case <-time.After(waitLimit):
			_ = d.cmd.Process.Kill() // it hangs
			<-d.done
		}
		if d.t.Failed() {
			d.t.Logf("%s printed\n%s", strings.Join(d.cmd.Args, " "), d.out.String())
		}
	})
}

// printed waits until its output matches, and returns the last group of the last match.
func (d *devRun) printed(pattern string) string {
	d.t.Helper()
	found := ""
	await(d.t, func() error {
		ended := false
		select {
		case <-d.done:
			ended = true
		default:
		}
		all := regexp.MustCompile(pattern).FindAllStringSubmatch(d.out.String(), -1)
		if len(all) > 0 {
			last := all[len(all)-1]
			found = last[len(last)-1]
			return nil
		}
		if ended {
			d.t.Fatalf("it has ended without printing %q", pattern)
		}
		return fmt.Errorf("it does not print %q", pattern)
	})
	return found
}

// ends waits for its end, after a signal unless that is 0, and checks the exit code, -1 being death by a signal.
func (d *devRun) ends(s syscall.Signal, code int) {
	d.t.Helper()
	if s != 0 {
		must(d.t, d.cmd.Process.Signal(s))
	}
	select {
	case <-d.done:
	case <-time.After(waitLimit):
		d.t.Fatal("it does not end")
	}
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("it has ended with %d, want %d", got, code)
	}
}

// folder is the run's own.
func (d *devRun) folder() string {
	d.t.Helper()
	return strings.TrimSuffix(d.printed(`put manifests into (\S+);`), "/manifests")
}

// processesOf lists the processes with all these words in the command line.
func processesOf(t *testing.T, words ...string) []int {
	t.Helper()
	var out []int
	for pid, line := range commandLines(t) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			out = append(out, pid)
		}
	}
	return out
}

// commandLines returns the command lines of all running processes other than this one.
func commandLines(t *testing.T) map[int]string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	out := map[int]string{}
	for _, dir := range dirs {
		args, err := os.ReadFile(dir + "/cmdline")
		pid, err2 := strconv.Atoi(filepath.Base(dir))
		if err == nil && err2 == nil && len(args) > 0 && pid != os.Getpid() {
			out[pid] = strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return out
}

// machine is all of the machine that a run could change, in lines.
func machine(t *testing.T) []string {
	t.Helper()
	must(t, os.MkdirAll(devTemp(), 0o755))
	var out []string
	add := func(what string, lines ...string) {
		for _, line := range lines {
			out = append(out, what+" "+line)
		}
	}
	for pid, line := range commandLines(t) {
		add("process", line)
		if space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
			add("network namespace", space)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		add("mount", strings.Join(strings.Fields(line)[2:], " ")) // without its number and its parent's
	}
	add("rule", rules(t)...)
	add("interface", interfaces(t)...)
	add("cgroup", cgroups(t)...)
	add("sysctl", values(t, "/proc/sys/net/ipv4")...)
	for _, dir := range []string{"/run", "/var/lib", "/var/log", "/etc", "/opt", "/usr/local", devTemp()} {
		add("file", filesBelow(t, dir)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func rules(t *testing.T) (out []string) {
	t.Helper()
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		text, err := exec.Command(program).Output()
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") {
				line, _, _ = strings.Cut(line, " [") // counters
				out = append(out, program+" "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

func interfaces(t *testing.T) (out []string) {
	t.Helper()
	all, err := net.Interfaces()
	must(t, err)
	for _, i := range all {
		addrs, err := i.Addrs()
		must(t, err)
		out = append(out, fmt.Sprint(i.Name, addrs))
	}
	routes, err := os.ReadFile("/proc/net/route")
	must(t, err)
	return append(out, strings.Split(string(routes), "\n")...)
}

func cgroups(t *testing.T) (out []string) {
	t.Helper()
	points, err := namespaces.Cgroups()
	must(t, err)
	for _, point := range points {
		dirs, err := namespaces.Below(point)
		must(t, err)
		out = append(out, dirs...)
		if down, err := os.ReadFile(point + "/cgroup.subtree_control"); err == nil {
			out = append(out, point+" hands down "+string(down))
		}
	}
	return out
}

// values returns files with their content; an unreadable file has none.
func values(t *testing.T, dir string) (out []string) {
	t.Helper()
	for _, file := range filesBelow(t, dir) {
		value, _ := os.ReadFile(file) // some take writing alone
		out = append(out, file+" "+strings.TrimSpace(string(value)))
	}
	return out
}

func filesBelow(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			out = append(out, path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// asBefore compares the machine with its earlier state. Leftovers of a killed process may take a moment to disappear.
func asBefore(t *testing.T, before []string) {
	t.Helper()
	var lost, left []string
	look := func() bool {
		now := machine(t)
		lost = slices.DeleteFunc(slices.Clone(before), func(line string) bool {
			_,
				there := slices.BinarySearch(now, line)
			return there
		})
		left = slices.DeleteFunc(now, func(line string) bool { _, there := slices.BinarySearch(before, line); return there })
		return len(lost)+len(left) == 0
	}
	for deadline := time.Now().Add(20 * time.Second); !look(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the machine is not as it was\nleft behind:\n  %s\nlost:\n  %s", strings.Join(left, "\n  "),
				strings.Join(lost, "\n  "))
		}
	}
}
