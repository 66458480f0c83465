//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// writer is a pod that writes numbered lines, and the folder of its log.
type writer struct {
	t      *testing.T
	data   string
	folder string
	where  string // which lines are in which file
}

// write starts the pod, with the logs of the agent kept as small as may be.
func write(t *testing.T, s *stack.Stack, files int) (*stack.Agent, *writer) {
	t.Helper()
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Config["containerLogMaxSize"] = "10Ki"
		a.Config["containerLogMaxFiles"] = files
		a.Config["containerLogMonitorInterval"] = "3s" // no less may be configured
	})
	w := &writer{t: t, data: t.TempDir()}
	must(t, a.Write("writer.yaml", manifest(s, "writer", withTool(t,
		"terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, command: ["+toolPath+", tool, count, /data], TOOL}]", w.data))))
	pod := awaitPod(t, a, "writer", ready)
	w.folder = filepath.Join(a.PodLogsDir, "default_"+pod.Name+"_"+string(pod.UID), "c")
	return a, w
}

// rotated are the rotated files, oldest first.
func (w *writer) rotated() []string {
	w.t.Helper()
	names, err := filepath.Glob(filepath.Join(w.folder, "0.log.*"))
	must(w.t, err)
	return slices.DeleteFunc(names, func(name string) bool {
		// A file being compressed briefly exists twice.
		return strings.HasSuffix(name, ".tmp") || slices.Contains(names, name+".gz")
	})
}

// awaitRotated waits for more rotations: for so many files that were not there before.
func (w *writer) awaitRotated(more int) {
	w.t.Helper()
	before := map[string]bool{}
	for _, name := range w.rotated() {
		before[strings.TrimSuffix(name, ".gz")] = true
	}
	seen := map[string]bool{}
	await(w.t, func() error {
		for _, name := range w.rotated() {
			if name = strings.TrimSuffix(name, ".gz"); !before[name] {
				seen[name] = true
			}
		}
		if len(seen) < more {
			return fmt.Errorf("rotated since are %v of %d", seen, more)
		}
		return nil
	})
}

// stop has it stop writing, and gives how many lines it wrote, once all are in its log.
func (w *writer) stop() int {
	w.t.Helper()
	put(w.t, filepath.Join(w.data, "stop"), "")
	n := 0
	await(w.t, func() error {
		text, err := os.ReadFile(filepath.Join(w.data, "done"))
		if err == nil {
			n, err = strconv.Atoi(string(text))
		}
		return err
	})
	return n
}

// lines are the numbers of all lines that the files of the log hold, in order.
func (w *writer) lines() (out []int) {
	w.t.Helper()
	w.where = ""
	for _, path := range append(w.rotated(), filepath.Join(w.folder, "0.log")) {
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			return nil // it is being rotated
		}
		must(w.t, err)
		var r io.Reader = f
		if strings.HasSuffix(path, ".gz") {
			r, err = gzip.NewReader(f)
			must(w.t, err)
		}
		partial, from := false, len(out)
		for in := bufio.NewScanner(r); in.Scan(); {
			fields := strings.Fields(in.Text())
			if len(fields) < 3 {
				w.t.Fatalf("%s has %q", path, in.Text())
			}
			// A line may be cut by the change of files: its number is in its first part.
			if !partial && len(fields) > 4 && fields[3] == "line" {
				n, err := strconv.Atoi(fields[4])
				must(w.t, err)
				out = append(out, n)
			}
			partial = fields[2] == "P"
		}
		must(w.t, f.Close())
		if len(out) > from {
			w.where += fmt.Sprintf(" %s: %d-%d,", filepath.Base(path), out[from], out[len(out)-1])
		} else {
			w.where += fmt.Sprintf(" %s: none,", filepath.Base(path))
		}
	}
	return out
}

// whole waits until the log has all lines to the last, each once and in order, from the first one on.
func (w *writer) whole(first, last int) {
	w.t.Helper()
	await(w.t, func() error {
		got := w.lines()
		if len(got) == 0 || got[0] > first || got[len(got)-1] != last {
			return fmt.Errorf("lines are not %d to %d, but%s", first, last, w.where)
		}
		for i, n := range got {
			if n != got[0]+i {
				return fmt.Errorf("after line %d comes %d:%s", got[i-1], n, w.where)
			}
		}
		return nil
	})
}

// A growing log is rotated and compressed, with the agent killed at the worst moments: between the steps of a rotation. Only the
// lines of surplus files are lost.
func TestLogRotation(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		const files = 6
		a, w := write(t, s, files)
		link := filepath.Join(a.LogLinksDir, onNode("writer")+"_default_c-"+up(t, s, "writer", "c").Id+".log")
		if target, err := os.Readlink(link); err != nil || target != filepath.Join(w.folder, "0.log") {
			await(t, func() error { // it is made when the runtime's word has come
				target, err := os.Readlink(link)
				if err == nil && target != filepath.Join(w.folder, "0.log") {
					err = fmt.Errorf("it leads to %s", target)
				}
				return err
			})
		}
		w.killAtRotation(a)
		w.whole(1, w.stop())

		// After a crash: a renamed log that the runtime still writes to.
		must(t, a.Kill9())
		must(t, os.Rename(filepath.Join(w.folder, "0.log"),
			filepath.Join(w.folder, "0.log."+time.Now().Add(time.Minute).Format("20060102-150405"))))
		put(t, filepath.Join(w.folder, "0.log.20260101-000000.tmp"), "half of it")
		w.goOn()
		must(t, a.Start())
		await(t, func() error { _, err := os.Stat(filepath.Join(w.folder, "0.log")); return err })
		w.whole(1, w.stop())
		followed := w.follow(a)
		w.goOn()
		w.awaitRotated(files - 2)
		last := w.stop()
		w.whole(last, last)
		if got := len(w.rotated()) + 1; got > files {
			t.Errorf("there are %d files: %v", got, w.rotated())
		}
		lines := w.lines()
		out, errs, code := playlet(t, "logs", "writer", "--admin-socket="+a.AdminSocket, "--tail="+strconv.Itoa(len(lines)-1))
		if code != 0 || strings.Count(out, "\n") != len(lines)-1 || !strings.HasPrefix(out, fmt.Sprintf("line %d ", lines[1])) {
			t.Errorf("the last %d lines over rotated files: code %d, %s, %d lines, first %.20q, want %d", len(lines)-1, code,
				errs,
				strings.Count(out, "\n"), out, lines[1])
		}
		must(t, a.Remove("writer.yaml"))
		followed(last)
		cleared(t, s, a)
		await(t, func() error {
			left, err := os.ReadDir(a.LogLinksDir)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("there is still the link %s", left[0])
			}
			return err
		})
	})
}

// follow reads the log as it comes. The returned function checks, after the container's end, that each line came once.
func (w *writer) follow(a *stack.Agent) func(last int) {
	w.t.Helper()
	cmd := exec.Command(program(), "logs", "-f", "writer", "--admin-socket="+a.AdminSocket)
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	must(w.t, cmd.Start())
	in := bufio.NewReader(out)
	first, err := in.ReadString('\n') // it follows
	must(w.t, err)
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(in) // its end is looked at
		rest <- string(text)
	}()
	return func(last int) {
		w.t.Helper()
		n := 0
		for line := range strings.Lines(first + <-rest) {
			if n++; !strings.HasPrefix(line, fmt.Sprintf("line %d ", n)) {
				w.t.Fatalf("followed: %q in the place of line %d", line, n)
			}
		}
		if err := cmd.Wait(); err != nil || n != last {
			w.t.Errorf("followed: %d lines of %d, %v, %s", n, last, err, errs.String())
		}
	}
}

// goOn has it write again.
func (w *writer) goOn() {
	w.t.Helper()
	must(w.t, os.Remove(filepath.Join(w.data, "done")))
	must(w.t, os.Remove(filepath.Join(w.data, "stop")))
}

// killAtRotation kills the agent the moment it has renamed a log, and starts it again.
func (w *writer) killAtRotation(a *stack.Agent) {
	w.t.Helper()
	for range 2 {
		before := len(w.rotated())
		for deadline := time.Now().Add(waitLimit); len(w.rotated()) == before; {
			if time.Now().After(deadline) {
				w.t.Fatal("nothing is rotated")
			}
		}
		must(w.t, a.Kill9())
		must(w.t, a.Start())
	}
	w.awaitRotated(1)
}
