package top

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/cmd/playlet/client/screen"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func used(nanoCores, workingSet uint64) (*stats.CPUStats, *stats.MemoryStats) {
	return &stats.CPUStats{UsageNanoCores: &nanoCores}, &stats.MemoryStats{WorkingSetBytes: &workingSet}
}

// hasFigures is a node with two pods, one of them with figures.
func hasFigures(f *fake.Agent) {
	web, db := fake.Pod("c", v1.PodRunning, fake.Runs(true)), fake.Pod("c", v1.PodPending, fake.Waits("ImagePullBackOff"))
	web.Pod.UID, db.Pod.UID, db.Pod.Name, db.Cause = "u1", "u2", "db", "no such image \x1b[31m"
	web.Pod.Labels = map[string]string{"app": "web"}
	f.Has(web, db)
	f.HasActors()
	f.Figures = api.Figures{At: fake.Noon, Allocatable: v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")},
		Agent: api.Process{Since: fake.Noon.Add(-100 * time.Second), CPU: time.Second, Resident: 40 << 20}}
	f.Figures.Node.NodeName = "node1"
	f.Figures.Node.CPU, f.Figures.Node.Memory = used(500e6, 1<<30)
	pod := stats.PodStats{PodRef: stats.PodReference{Namespace: "default", Name: "web", UID: "u1"}}
	pod.CPU, pod.Memory = used(250e6, 3<<20)
	c := stats.ContainerStats{Name: "c"}
	c.CPU, c.Memory = used(200e6, 2<<20)
	pod.Containers = []stats.ContainerStats{c}
	f.Figures.Pods = []stats.PodStats{pod}
}

func TestTopWithoutATerminal(t *testing.T) {
	f := fake.Start(t, NewCommand)
	hasFigures(f)
	f.Figures.Missing = []string{"the runtime does not answer"}
	for _, args := range [][]string{{"top"}, {"top", "--once"}} {
		out, notes, code := f.Command(t, args...)
		out = regexp.MustCompile(` {3}\d+d `).ReplaceAllString(out, "   AGE ")
		want := `NAMESPACE   NAME   READY   STATUS             RESTARTS   CPU      MEMORY   AGE    CAUSE
default     web    1/1     Running            0          250m     3Mi      AGE   <none>
default     db     0/1     ImagePullBackOff   0          <none>   <none>   AGE   no such image  [31m
`
		if out != want || notes != "the runtime does not answer\n" || code != 0 {
			t.Errorf("%v: %d %q\n%s\nwant\n%s", args, code, notes, out, want)
		}
	}
}

func TestTopPodsAndNode(t *testing.T) {
	f := fake.Start(t, NewCommand)
	hasFigures(f)
	for args, want := range map[string]string{
		"top pods":                             "NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)\ndefault     web    250m         3Mi\n",
		"top pods -l app=web --no-headers":     "default   web   250m   3Mi\n",
		"top pods -n kube-system --no-headers": "",
		"top pod web --containers":             "NAMESPACE   POD   NAME   CPU(cores)   MEMORY(bytes)\ndefault     web   c      200m         2Mi\n",
		"top node":                             "NAME    CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\nnode1   500m         25%      1024Mi          25%\n",
	} {
		if out, notes, code := f.Command(t, strings.Fields(args)...); out != want || code != 0 || notes != "" {
			t.Errorf("%s: %d %q\n%s\nwant\n%s", args, code, notes, out, want)
		}
	}
	for args, want := range map[string]string{
		"top pods db":          "there are no figures of pod default/db",
		"top pods nope":        `there is no pod "nope"`,
		"top pods --sort-by=x": `--sort-by="x" is unknown; it may be cpu, memory`,
		"top pods -o csv":      "it may be table, yaml, json",
		"top nope":             `"nope" is none of pods and node`,
	} {
		if _, notes, code := f.Command(t, strings.Fields(args)...); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s: %d %q", args, code, notes)
		}
	}
	var got struct {
		Pods        []stats.PodStats
		Node        stats.NodeStats
		Allocatable v1.ResourceList
	}
	out, _, _ := f.Command(t, "top", "pods", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Pods) != 1 || *got.Pods[0].CPU.UsageNanoCores != 250e6 {
		t.Errorf("%v %s", err, out)
	}
	out, _, _ = f.Command(t, "top", "node", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Node.NodeName != "node1" || got.Allocatable.Cpu().Value() != 2 {
		t.Errorf("%v %s", err, out)
	}
}

func TestTopSorts(t *testing.T) {
	f := fake.Start(t, NewCommand)
	hasFigures(f)
	second := f.Figures.Pods[0]
	second.PodRef.UID, second.PodRef.Name = "u2", "db"
	second.CPU, second.Memory = used(300e6, 1<<20)
	f.Figures.Pods = append(f.Figures.Pods, second)
	for by, want := range map[string]string{"": "web", "cpu": "db", "memory": "web"} {
		out, _, _ := f.Command(t, "top", "pods", "--no-headers", "--sort-by="+by)
		if first := strings.Fields(out)[1]; first != want {
			t.Errorf("by %q, %s comes first", by, first)
		}
	}
}

// The header counts pods by phase, and shows the agent's processor usage: since its start, then between two reads.
func TestTheHeaderOfTop(t *testing.T) {
	f := fake.Start(t, NewCommand)
	hasFigures(f)
	d := &topData{pods: f.Pods, figures: f.Figures}
	d.pods.Runtime.Name, d.pods.Runtime.Version = "containerd", "2.4.2"
	says := func(want ...string) {
		t.Helper()
		got := strings.Join(d.header(fake.Noon), "\n")
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q is not in\n%s", w, got)
			}
		}
	}
	crash := fake.Pod("c", v1.PodRunning, fake.Waits("CrashLoopBackOff"))
	crash.Cause = "container c exited with code 3"
	d.pods.Pods = append(d.pods.Pods, *crash)
	says("node1   containerd 2.4.2", "pods 3  2 Running  1 Pending   2 in trouble  1 crashing", "node 500m CPU (25%), 1024Mi memory (25%)",
		"agent 10m CPU since its start, 40Mi memory")
	d.before = d.figures
	d.figures.At, d.figures.Agent.CPU = fake.Noon.Add(2*time.Second), d.figures.Agent.CPU+100*time.Millisecond
	says("agent 50m CPU, 40Mi")
	d.figures.Agent.Since = fake.Noon.Add(time.Second) // another agent
	says("since its start")
	d.problem, d.pods.Runtime.Ready = "playlet is not running", false
	says("! playlet is not running (1 more: playlet explain node)")
}

// States have colours where the terminal takes them; elsewhere trouble is bold.
func TestTheColoursOfTop(t *testing.T) {
	f := fake.Start(t, NewCommand)
	hasFigures(f)
	pending, job := fake.Pod("c", v1.PodPending), fake.Pod("c", v1.PodSucceeded)
	f.Has(pending, job)
	for colour, want := range map[bool]string{true: `["" "31" "33" "32"]`, false: `["" "1" "" ""]`} {
		d := &topData{pods: f.Pods, colour: colour}
		var got []string
		for _, r := range d.podRows(fake.Noon) {
			got = append(got, string(r.Style))
		}
		if fmt.Sprintf("%q", got) != want {
			t.Errorf("colour %t: %q, want %s", colour, got, want)
		}
	}
}

// pseudoTerminal is a new terminal and the text on its screen.
type pseudoTerminal struct {
	t       *testing.T
	program *os.File // its end for the program
	person  *os.File
	text    func() string
}

func newTerminal(t *testing.T, columns, rows uint16) *pseudoTerminal {
	t.Helper()
	x := &pseudoTerminal{t: t}
	x.program, x.person, x.text = fake.Terminal(t)
	x.resize(columns, rows)
	return x
}

func (x *pseudoTerminal) resize(columns, rows uint16) {
	conn, err := x.person.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
		})
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// frame returns the last drawn frame, as lines without their styles.
func (x *pseudoTerminal) frame() string {
	all := x.text()
	if i := strings.LastIndex(all, "\x1b[J"); i >= 0 { // the last whole one
		all = all[:i]
	}
	all = all[max(strings.LastIndex(all, "\x1b[H"), 0):]
	return regexp.MustCompile(`\x1b\[[?0-9;]*[A-Za-z]`).ReplaceAllString(all, "")
}

func (x *pseudoTerminal) press(keys string) {
	if _, err := x.person.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// until waits until the last frame has all of these.
func (x *pseudoTerminal) until(want ...string) {
	x.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		missing := ""
		for _, w := range want {
			if !strings.Contains(x.frame(), w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("%q is not shown:\n%s", missing, x.frame())
		}
	}
}

func (x *pseudoTerminal) settings() unix.Termios {
	conn, err := x.program.SyscallConn()
	var got *unix.Termios
	if err == nil {
		err = conn.Control(func(fd uintptr) { got, _ = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	}
	if err != nil || got == nil {
		x.t.Fatal("no settings: ", err)
	}
	return *got
}

// runTop runs top on the terminal until its end, which it gives.
func (x *pseudoTerminal) runTop(f *fake.Agent) (end chan any) {
	x.t.Helper()
	end = make(chan any, 1)
	run := &top{client: api.NewClient(f.Socket), in: x.program, out: x.program, every: 5 * time.Millisecond, now: time.Now}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				end <- p
			}
		}()
		end <- run.run(x.t.Context())
	}()
	return end
}

// ended awaits the end.
func (x *pseudoTerminal) ended(end chan any) any {
	x.t.Helper()
	select {
	case got := <-end:
		return got
	case <-time.After(5 * time.Minute):
		x.t.Fatalf("it goes on:\n%s", x.frame())
		return nil
	}
}

// left waits until the terminal is as it was.
func (x *pseudoTerminal) left(before unix.Termios) {
	x.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.HasSuffix(x.text(), screen.Leave); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("the last that was sent is %q", x.text()[max(0, len(x.text())-60):])
		}
	}
	if x.settings() != before {
		x.t.Errorf("the terminal was left as %+v", x.settings())
	}
}

func TestTopOnATerminal(t *testing.T) {
	f, x := fake.Start(t, NewCommand), newTerminal(t, 100, 12)
	hasFigures(f)
	var rules []chaos.Rule
	f.Chaos = func(r chaos.Rule, dryRun bool) (*api.ChaosRule, *api.Error) {
		if dryRun {
			return &api.ChaosRule{}, nil
		}
		rules = append(rules, r)
		return &api.ChaosRule{Status: chaos.Status{ID: 7}}, nil
	}
	before := x.settings()
	end := x.runTop(f)
	x.until("[pods (2)]", "web", "250m", "3Mi", "no such image  [31m", "m CPU since its start")
	if x.settings() == before {
		t.Error("the terminal is not in raw mode: keys would need Enter")
	}
	x.press("\x1b[B\r")
	x.until("explain pod default/db", "the cause of db")
	f.Mu.Lock()
	f.Cause = "another cause"
	f.Mu.Unlock()
	x.until("another cause") // it is live
	x.press("\x1b")
	x.until("[pods (2)]")
	x.press("l")
	x.until("logs of default/db", "db  1", "db  2", "Esc back")
	x.press("d")
	x.until("describe pod default/db", "Status:", "ImagePullBackOff")
	x.press("\x1b")
	x.until("[pods (2)]")
	x.press("?")
	x.until("choose a row", "Esc back  Ctrl-C quit")
	x.press("\x1b")
	x.until("[pods (2)]", "pods 2  1 Running  1 Pending   1 in trouble")
	x.press("\t")
	x.until("│  ├─ default/web", "│  │  └─ c")
	x.press("/quarant\r")
	x.until("[actors (1)]", "pods/other/web", `only "quarant"`)
	x.press("K")
	x.until("Kill the actor of pods/other/web?", "(y/n)")
	x.press("n")
	x.until("nothing was done")
	x.press("K")
	x.until("(y/n)")
	x.press("y")
	x.until("rule 7 kills pods/other/web")
	if len(rules) != 1 || rules[0].Target != "pods/u2" || rules[0].Verb != chaos.Kill || rules[0].Count != 1 {
		t.Errorf("%+v", rules)
	}
	x.press("t")
	x.until("trace pods/other/web", "there is no pods/u2 (playlet actors lists them)")
	x.press("\x1b")
	x.until("[actors (1)]")
	x.press("q")
	if got := x.ended(end); got != nil {
		t.Errorf("it ended with %v", got)
	}
	x.left(before)
}

// Where chaos is not enabled, the agent's refusal is shown and nothing is asked.
func TestTopKillsNothingWithoutChaos(t *testing.T) {
	f, x := fake.Start(t, NewCommand), newTerminal(t, 100, 12)
	hasFigures(f)
	f.Chaos = func(chaos.Rule, bool) (*api.ChaosRule, *api.Error) {
		return nil, &api.Error{Status: http.StatusForbidden, Text: "chaos is not enabled"}
	}
	end := x.runTop(f)
	x.until("[pods (2)]")
	x.press("K")
	x.until("chaos is not enabled")
	x.press("\x03")
	if got := x.ended(end); got != nil {
		t.Errorf("it ended with %v", got)
	}
}

// A missing agent is awaited; the last known state stays on the screen.
func TestTopOutlivesTheAgent(t *testing.T) {
	f, x := fake.Start(t, NewCommand), newTerminal(t, 100, 12)
	hasFigures(f)
	end := x.runTop(f)
	x.until("[pods (2)]")
	f.Mu.Lock()
	f.Broken = true
	f.Mu.Unlock()
	x.until("what is shown is old", "web")
	f.Mu.Lock()
	f.Broken = false
	f.Mu.Unlock()
	for strings.Contains(x.frame(), "what is shown is old") {
		time.Sleep(time.Millisecond)
	}
	x.press("q")
	x.ended(end)
}

// A panic beside the loop ends the program as any other does, with the terminal as it was.
func TestTopGivesTheTerminalBackAfterAPanic(t *testing.T) {
	f, x := fake.Start(t, NewCommand), newTerminal(t, 100, 12)
	hasFigures(f)
	before := x.settings()
	run := &top{client: api.NewClient(f.Socket), in: x.program, out: x.program, every: time.Millisecond}
	calls := 0
	run.now = func() time.Time {
		if calls++; calls > 3 {
			panic("a bug")
		}
		return fake.Noon
	}
	var got any
	func() {
		defer func() { got = recover() }()
		_ = run.run(t.Context())
	}()
	if !strings.Contains(fmt.Sprint(got), "a bug") {
		t.Errorf("%v", got)
	}
	x.left(before)
}

func TestTopFollowsTheSize(t *testing.T) {
	f, x := fake.Start(t, NewCommand), newTerminal(t, 100, 12)
	hasFigures(f)
	end := x.runTop(f)
	x.until("[pods (2)]", "no such image")
	x.resize(40, 8)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil { // the kernel signals controlling terminals only
		t.Fatal(err)
	}
	x.until("…")
	if lines := strings.Split(x.frame(), "\r\n"); len(lines) != 8 {
		t.Errorf("%d lines:\n%s", len(lines), x.frame())
	}
	x.press("q")
	x.ended(end)
}
