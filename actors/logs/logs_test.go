package logs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is an actor with a fake runtime of one container. Like a real one, the runtime writes the log to its open file.
type node struct {
	*supervisortest.Kit
	t            *testing.T
	dir          string
	opts         Options
	ops          *cri.Operations
	running      bool
	file         *os.File
	line         int
	reopened     int
	fail         error // of ReopenContainerLog
	openThenFail bool
}

const (
	theLog  = "ns_pod_uid/app/0.log"
	theLink = "pod_ns_app-c1.log"
)

func newNode(t *testing.T, change func(*Options)) *node {
	n := &node{t: t, dir: t.TempDir(), ops: cri.NewOperations(), running: true}
	n.opts = Options{
		CRI: n, Operations: n.ops, PodLogsDir: filepath.Join(n.dir, "pods"), LinksDir: filepath.Join(n.dir, "links"),
		MaxSize: 100, MaxFiles: 3, Workers: 1, Every: time.Second,
	}
	if change != nil {
		change(&n.opts)
	}
	n.must(os.MkdirAll(filepath.Dir(n.at(theLog)), 0o755))
	n.must(n.ReopenContainerLog(nil, "c1")) //nolint:staticcheck // a fake
	n.reopened = 0
	t.Cleanup(func() { n.must(n.file.Close()) })
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) at(name string) string { return filepath.Join(n.opts.PodLogsDir, name) }

// start starts the first actor, or another one after a crash.
func (n *node) start() {
	n.Kit = supervisortest.New(n.t, messages.Logs, New(n.opts)("logs"))
	n.RunWork()
	n.tell()
	n.Advance(soon)
	n.RunWork()
}

// round runs one regular look and the work that follows from it.
func (n *node) round() {
	n.Advance(n.opts.Every)
	n.RunWork()
}

// tell sends the current containers to the actor.
func (n *node) tell() {
	state := messages.ContainerExited
	if n.running {
		state = messages.ContainerRunning
	}
	n.Send(messages.Runtime, messages.ContainersChanged{Facts: messages.PodFacts{UID: "uid", Namespace: "ns", Name: "pod",
		Containers: []messages.ContainerFact{
			{ID: "c1", Name: "app", State: state}, {ID: "../x", Name: "foreign"},
		}}})
}

func (n *node) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	state := runtimeapi.ContainerState_CONTAINER_EXITED
	if n.running {
		state = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: state}}, nil
}

func (n *node) ReopenContainerLog(context.Context, string) error {
	n.reopened++
	if n.fail != nil && !n.openThenFail {
		return n.fail
	}
	f, err := os.OpenFile(n.at(theLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	n.must(err)
	if n.file != nil {
		n.must(n.file.Close())
	}
	n.file = f
	return n.fail
}

// write writes numbered lines to the log.
func (n *node) write(lines int) {
	for range lines {
		n.line++
		_, err := fmt.Fprintf(n.file, "2026-01-02T03:04:05.000000000Z stdout F line %d\n", n.line)
		n.must(err)
	}
}

// names returns the files of the log.
func (n *node) names() (out []string) {
	list, err := os.ReadDir(filepath.Dir(n.at(theLog)))
	n.must(err)
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// lines returns the lines of all files, in order.
func (n *node) lines() (out []string) {
	names := n.names()
	if len(names) > 0 && names[0] == "0.log" {
		names = append(names[1:], names[0])
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(n.at(theLog)), name))
		n.must(err)
		if strings.HasSuffix(name, ".gz") {
			zip, err := gzip.NewReader(bytes.NewReader(text))
			n.must(err)
			text, err = io.ReadAll(zip)
			n.must(err)
		}
		for line := range strings.Lines(string(text)) {
			out = append(out, strings.TrimSpace(line[strings.LastIndex(line, "F ")+2:]))
		}
	}
	return out
}

// nothingLost fails unless the files have every line from the given one to the last one written, once and in order.
func (n *node) nothingLost(from int) {
	n.t.Helper()
	var want []string
	for i := from; i <= n.line; i++ {
		want = append(want, fmt.Sprint("line ", i))
	}
	if got := n.lines(); !slices.Equal(got, want) {
		n.t.Errorf("there are %v in %v, want %d to %d", got, n.names(), from, n.line)
	}
}

func TestALogIsRotated(t *testing.T) {
	n := newNode(t, nil)
	n.write(1)
	n.start()
	if n.reopened > 0 {
		t.Error("a small log was rotated")
	}
	for i, want := range []string{"0.log x", "0.log x.gz x", "0.log x.gz x", "0.log x.gz x"} {
		n.write(2)
		n.round()
		n.write(1)
		var got []string
		for _, name := range n.names() {
			if rest, ok := strings.CutPrefix(name, "0.log.20"); ok {
				name = "x" + rest[13:]
			}
			got = append(got, name)
		}
		if strings.Join(got, " ") != want || n.reopened != i+1 {
			t.Errorf("after %d rotations there are %v, reopened %d times", i+1, n.names(), n.reopened)
		}
		if i < 2 {
			n.nothingLost(1)
		}
	}
	n.nothingLost(n.line - 6) // three files
	if got := n.names(); len(got) != 3 {
		t.Errorf("more than three files: %v", got)
	}
}

// After a crash at each step of a rotation the next agent completes it, and every line exists once.
func TestACrashInTheMiddle(t *testing.T) {
	dir := filepath.Dir(theLog)
	for _, c := range []struct {
		name  string
		crash func(n *node)
	}{
		{"renamed, not opened anew", func(n *node) {
			n.must(os.Rename(n.at(theLog), n.at(theLog+".20260101-000000")))
			n.write(1) // to the file that is still open
		}},
		{"compressing", func(n *node) { n.must(os.WriteFile(n.at(dir+"/0.log.20251231-000000.tmp"), []byte("half"), 0o640)) }},
		{"compressed, the original not removed", func(n *node) {
			name := n.at(theLog + ".20251231-000000")
			text, err := os.ReadFile(n.at(theLog))
			n.must(err)
			n.must(os.WriteFile(name, text, 0o640))
			var b bytes.Buffer
			zip := gzip.NewWriter(&b)
			_, err = zip.Write(text)
			n.must(errors.Join(err, zip.Close(), os.WriteFile(name+".gz", b.Bytes(), 0o640), os.Truncate(n.at(theLog), 0)))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, nil)
			n.write(1)
			c.crash(n)
			n.start()
			n.round()
			n.write(3)
			n.round()
			n.round()
			n.write(1)
			n.nothingLost(1)
			for _, name := range n.names() {
				if strings.HasSuffix(name, ".tmp") {
					t.Errorf("there is %s", name)
				}
			}
			if !slices.Contains(n.names(), "0.log") {
				t.Errorf("there is no log: %v", n.names())
			}
		})
	}
}

// If the runtime does not reopen the log, the log gets its name back. If the runtime did so and only its answer was lost, the
// existing file shows it.
func TestARuntimeThatFails(t *testing.T) {
	for _, opens := range []bool{false, true} {
		n := newNode(t, nil)
		n.start()
		n.fail, n.openThenFail = errors.New("no"), opens
		n.write(3)
		n.round()
		n.write(1)
		if got := n.names(); opens != (len(got) == 2) || !slices.Contains(got, "0.log") {
			t.Errorf("opened %v: there are %v", opens, got)
		}
		n.fail = nil
		n.write(3)
		n.round()
		n.round()
		n.write(1)
		n.nothingLost(1)
	}
}

// A link in the place of a log is not followed, and its target is not changed.
func TestALinkInThePlaceOfALog(t *testing.T) {
	n := newNode(t, nil)
	outside := filepath.Join(n.dir, "outside")
	n.must(os.WriteFile(outside, bytes.Repeat([]byte("x"), 1000), 0o640))
	n.must(os.Remove(n.at(theLog)))
	n.must(os.Symlink(outside, n.at(theLog)))
	n.start()
	n.round()
	if n.reopened > 0 || len(n.names()) != 1 {
		t.Errorf("it was rotated: %v", n.names())
	}
	n.must(os.RemoveAll(filepath.Dir(n.at(theLog))))
	n.must(os.Mkdir(filepath.Join(n.dir, "app"), 0o755))
	n.must(os.WriteFile(filepath.Join(n.dir, "app", "0.log"), bytes.Repeat([]byte("x"), 1000), 0o640))
	n.must(os.Symlink(filepath.Join(n.dir, "app"), filepath.Dir(n.at(theLog))))
	n.round()
	if list, err := os.ReadDir(filepath.Join(n.dir, "app")); err != nil || n.reopened > 0 || len(list) != 1 {
		t.Errorf("a folder elsewhere has %v, %v", list, err)
	}
	if _, err := os.Lstat(filepath.Join(n.opts.LinksDir, theLink)); err == nil {
		t.Error("there is a link to it")
	}
	n.must(os.Remove(filepath.Dir(n.at(theLog))))
	n.must(os.MkdirAll(filepath.Dir(n.at(theLog)), 0o755))
}

// A file that cannot be compressed is kept, and counts towards MaxFiles. Rotation continues.
func TestWhatCannotBeCompressedStays(t *testing.T) {
	n := newNode(t, func(o *Options) { o.MaxFiles = 5 })
	n.start()
	for range 3 {
		n.write(3)
		n.round()
		for _, name := range n.names() { // a folder in the way of each copy
			if name != "0.log" && !strings.HasSuffix(name, ".tmp") {
				n.must(os.MkdirAll(n.at(filepath.Dir(theLog)+"/"+name+".tmp/x"), 0o755))
			}
		}
	}
	for _, name := range n.names() {
		if strings.HasSuffix(name, ".tmp") {
			n.must(os.RemoveAll(n.at(filepath.Dir(theLog) + "/" + name)))
		}
	}
	n.nothingLost(1)
	if n.reopened < 2 {
		t.Errorf("rotated %d times", n.reopened)
	}
}

func TestNothingIsRotatedWhereThatIsOff(t *testing.T) {
	n := newNode(t, func(o *Options) { o.MaxSize = -1 })
	n.write(100)
	n.start()
	n.round()
	if n.reopened > 0 || len(n.names()) != 1 {
		t.Errorf("there are %v", n.names())
	}
	if _, err := os.Stat(filepath.Join(n.opts.LinksDir, theLink)); err != nil {
		t.Error(err)
	}
}

func TestLinks(t *testing.T) {
	n := newNode(t, nil)
	n.must(os.MkdirAll(n.opts.LinksDir, 0o755))
	put := func(name, target string) { n.must(os.Symlink(target, filepath.Join(n.opts.LinksDir, name))) }
	put("gone_ns_app-c0.log", n.at("ns_gone_uid0/app/0.log"))
	put(theLink, n.at("ns_pod_uid/app/9.log"))
	put("anothers.log", "/nowhere/0.log")
	put("no-log", n.at("x"))
	n.must(os.WriteFile(filepath.Join(n.opts.LinksDir, "a-file.log"), nil, 0o600))
	n.start()
	n.is(theLink, n.at(theLog))
	n.is("gone_ns_app-c0.log", "")
	n.is("anothers.log", "/nowhere/0.log")
	n.is("no-log", n.at("x"))
	n.must(os.Remove(filepath.Join(n.opts.LinksDir, theLink)))
	n.round()
	n.is(theLink, n.at(theLog))
	// The log is missing for a moment during a rotation; its link stays.
	n.running = false
	n.tell()
	n.must(os.Rename(n.at(theLog), n.at(theLog)+".away"))
	n.round()
	n.is(theLink, n.at(theLog))
	n.must(os.Rename(n.at(theLog)+".away", n.at(theLog)))
	// A link stays as long as its log exists, because the actor may not know the container yet.
	n.Send(messages.Runtime, messages.ContainersChanged{Facts: messages.PodFacts{UID: "uid"}})
	n.Advance(soon)
	n.RunWork()
	n.is(theLink, n.at(theLog))
	// If the first container's start was interrupted, the next one has the same log. Only the new link remains.
	second := strings.Replace(theLink, "c1", "c2", 1)
	n.Send(messages.Runtime, messages.ContainersChanged{Facts: messages.PodFacts{UID: "uid", Namespace: "ns", Name: "pod",
		Containers: []messages.ContainerFact{{ID: "c2", Name: "app", State: messages.ContainerRunning}}}})
	n.Advance(soon)
	n.RunWork()
	n.is(second, n.at(theLog))
	n.is(theLink, "")
	n.Send(messages.Runtime, messages.ContainersChanged{Facts: messages.PodFacts{UID: "uid"}})
	n.must(os.Remove(n.at(theLog)))
	n.round()
	n.is(second, "")
}

// After a change of one pod only its links are checked. Other links wait for the next complete look.
func TestAChangeIsLookedAtByItself(t *testing.T) {
	n := newNode(t, nil)
	n.start()
	dead := n.at("ns_other_uid0/app/0.log")
	n.must(os.Symlink(dead, filepath.Join(n.opts.LinksDir, "other_ns_app-c0.log")))
	n.must(os.Symlink(dead, filepath.Join(n.opts.LinksDir, "pod_ns_app-c0.log")))
	n.running = false
	n.tell()
	n.Advance(soon)
	n.RunWork()
	n.is("pod_ns_app-c0.log", "")
	n.is("other_ns_app-c0.log", dead)
	n.round()
	n.is("other_ns_app-c0.log", "")
	n.is(theLink, n.at(theLog))
}

func (n *node) is(name, want string) {
	n.t.Helper()
	got, err := os.Readlink(filepath.Join(n.opts.LinksDir, name))
	if got != want || (err != nil) != (want == "") {
		n.t.Errorf("link %s leads to %q, %v, want %q", name, got, err, want)
	}
}

// Names longer than a file system allows are truncated, as in the kubelet.
func TestLongLinkNames(t *testing.T) {
	got := linkName(strings.Repeat("p", 253), "ns", "app", "id")
	if len(got) != 255 || !strings.HasSuffix(got, ".log") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := linkName("pod", "ns", "app", "c1"); got != theLink {
		t.Error(got)
	}
}

// A restarted actor joins a rotation in progress.
func TestARotationIsJoined(t *testing.T) {
	n := newNode(t, nil)
	n.write(3)
	n.Kit = supervisortest.New(t, messages.Logs, New(n.opts)("logs"))
	n.RunWork()
	n.tell()
	n.Advance(soon)
	n.RunOne(n.Work[0])
	work := n.Work[1:]
	if len(work) != 1 {
		t.Fatalf("it asks for %v", work)
	}
	hold, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := n.ops.Do(t.Context(), "uid/log/c1", time.Minute, func(context.Context) (any, error) { <-hold; return nil, nil })
		done <- err
	}()
	for len(n.ops.InFlight("uid/")) == 0 {
		time.Sleep(time.Millisecond)
	}
	ended := make(chan any, 1)
	go func() { ended <- work[0].Run(t.Context()) }()
	for n.ops.Waiting("uid/log/c1") < 2 {
		time.Sleep(time.Millisecond)
	}
	close(hold)
	n.must(<-done)
	if got := (<-ended).(maintenanceResult); got.problem != nil || n.reopened > 0 {
		t.Errorf("%+v, reopened %d times", got, n.reopened)
	}
}

// leaver is a runtime with a container that ends during ReopenContainerLog.
type leaver struct {
	*node
	before func() // runs before the container ends
}

func (l *leaver) ReopenContainerLog(context.Context, string) error {
	l.before()
	l.running = false
	return errors.New("it has ended")
}

// The end of a container does not hide other problems with its log.
func TestLogProblem_EndsWithTheContainer(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(n *node)
		before  func(n *node)
		wrong   string
	}{
		"nothing": {},
		"a leftover that cannot be removed": {
			prepare: func(n *node) { n.must(os.MkdirAll(n.at(theLog+".20251231-000000.tmp/x"), 0o755)) },
			wrong:   "20251231-000000.tmp",
		},
		"a part too many that cannot be removed": {
			prepare: func(n *node) {
				n.opts.MaxFiles = 2
				n.must(os.MkdirAll(n.at(theLog+".20251231-000000/x"), 0o755))
			}, wrong: "20251231-000000",
		},
		"its name that cannot be given back": {
			before: func(n *node) {
				for _, name := range n.names() {
					n.must(os.Rename(n.at(filepath.Dir(theLog)+"/"+name), filepath.Join(n.dir, name)))
				}
			}, wrong: "no such file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.write(3)
			if c.prepare != nil {
				c.prepare(n)
			}
			l := &leaver{n, func() {
				if c.before != nil {
					c.before(n)
				}
			}}
			n.opts.CRI = l
			err := work{n.opts}.tend(t.Context(), container{id: "c1", uid: "uid", running: true, log: theLog}, time.Now())
			if n.running || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want one of %q", err, c.wrong)
			}
		})
	}
}
