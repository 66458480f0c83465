package prober

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

const (
	succeeded = messages.ProbeSucceeded
	failed    = messages.ProbeFailed
)

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pods", "u1"), 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

// step advances the clock by seconds and runs the resulting work.
func step(k *supervisortest.Kit, seconds int) {
	for range seconds {
		k.Advance(time.Second)
		k.RunWork()
	}
}

// Thresholds, delays and periods: a series of exit codes, and the result after each run.
func TestThresholds(t *testing.T) {
	for name, c := range map[string]struct {
		kind             messages.ProbeKind
		success, failure int32
		codes            []int32
		want             []messages.ProbeResult
	}{
		"readiness at once": {messages.Readiness, 1, 3, []int32{0}, []messages.ProbeResult{succeeded}},
		"readiness fails at the third": {messages.Readiness, 1, 3, []int32{0, 1, 1, 1, 0},
			[]messages.ProbeResult{succeeded, succeeded, succeeded, failed, succeeded}},
		"a success in between": {messages.Readiness, 1, 3, []int32{0, 1, 1, 0, 1, 1, 1},
			[]messages.ProbeResult{succeeded, succeeded, succeeded, succeeded, succeeded, succeeded, failed}},
		"two successes are wanted": {messages.Readiness, 2, 1, []int32{0, 1, 0, 0},
			[]messages.ProbeResult{"", failed, failed, succeeded}},
		"liveness": {messages.Liveness, 1, 2, []int32{0, 1, 1},
			[]messages.ProbeResult{succeeded, succeeded, failed}},
		"startup":       {messages.Startup, 1, 2, []int32{1, 0}, []messages.ProbeResult{"", succeeded}},
		"startup fails": {messages.Startup, 1, 2, []int32{1, 1}, []messages.ProbeResult{"", failed}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime()
			k := newKit(t, folder(t), r, nil)
			p := command()
			p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold = 5, c.success, c.failure
			spec := container("c", map[messages.ProbeKind]*v1.Probe{c.kind: p})
			k.Send("pods/u1", watchOf(k, 1, spec, "id", c.kind))
			var is messages.ProbeResult
			for i, code := range c.codes {
				r.codes["id"] = code
				if i > 0 {
					step(k, 5)
				} else {
					k.RunWork()
					k.Advance(0)
					k.RunWork()
				}
				for _, w := range words(k) {
					is = *w.Containers[0].Results.Of(c.kind)
				}
				if r.calls["id"] != i+1 {
					t.Fatalf("after %d periods it has run %d times", i, r.calls["id"])
				}
				if is != c.want[i] {
					t.Errorf("after run %d it is %q, want %q", i, is, c.want[i])
				}
			}
			if c.kind != messages.Readiness && is != "" && is == c.want[len(c.want)-1] &&
				(is == failed || c.kind == messages.Startup) {
				step(k, 20)
				if n := r.calls["id"]; n != len(c.codes) {
					t.Errorf("it went on: %d runs", n)
				}
			}
		})
	}
}

// The delay counts from the container's start, and a clock of the runtime that goes ahead lengthens nothing.
func TestInitialDelay(t *testing.T) {
	for ahead, want := range map[time.Duration]int{0: 7, -3 * time.Second: 4, time.Hour: 7} {
		r := newRuntime()
		k := newKit(t, folder(t), r, nil)
		p := command()
		p.InitialDelaySeconds = 7
		w := watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Liveness: p}), "id", messages.Liveness)
		w.Containers[0].StartedAt = k.Now().Add(ahead)
		k.Send("pods/u1", w)
		k.RunWork()
		step(k, want-1)
		if n := r.calls["id"]; n != 0 {
			t.Errorf("%v: %d runs before its time", ahead, n)
		}
		if step(k, 1); r.calls["id"] != 1 {
			t.Errorf("%v: %d runs", ahead, r.calls["id"])
		}
	}
}

// A clock that is set changes neither the delay nor the period of a probe.
func TestSchedule_ClockSet(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		r := newRuntime()
		k := newKit(t, folder(t), r, nil)
		p := command()
		p.InitialDelaySeconds = 30
		w := watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Liveness: p}), "id", messages.Liveness)
		w.Containers[0].StartedAt = k.Now().Round(0) // the runtime's
		k.Send("pods/u1", w)
		k.RunWork()
		k.SetClock(jump)
		for _, s := range []struct{ seconds, runs int }{{29, 0}, {1, 1}, {9, 1}, {1, 2}} {
			step(k, s.seconds)
			if r.calls["id"] != s.runs {
				t.Errorf("clock set by %s: %d runs, want %d", jump, r.calls["id"], s.runs)
			}
		}
		k.SetClock(jump)
		for range 3 {
			step(k, 10)
		}
		if r.calls["id"] != 5 {
			t.Errorf("clock set by %s again: %d runs, want 5", jump, r.calls["id"])
		}
	}
}

// After a restart of the agent, the last result stays valid for the same attempt until new runs change it. Another attempt
// has no result.
func TestTheLastWordOutlivesTheProber(t *testing.T) {
	dir, r := folder(t), newRuntime()
	spec := container("c", map[messages.ProbeKind]*v1.Probe{messages.Startup: command(), messages.Readiness: command()})
	k := newKit(t, dir, r, nil)
	k.Send("pods/u1", watchOf(k, 1, spec, "id", messages.Startup))
	step(k, 2)
	k.Send("pods/u1", watchOf(k, 2, spec, "id", messages.Readiness))
	step(k, 20)
	want := messages.ProbeResults{Startup: succeeded, Readiness: succeeded}
	if got := last(t, k).Containers[0].Results; got != want {
		t.Fatalf("it said %+v", got)
	}

	runs := r.calls["id"]
	r.codes["id"] = 1
	k = newKit(t, dir, r, nil)
	k.Send("pods/u1", watchOf(k, 1, spec, "id", messages.Startup))
	if len(words(k)) > 0 {
		t.Error("it answers before it has read what is known")
	}
	k.RunWork()
	if got := last(t, k); got.Generation != 1 || got.Containers[0].Results != want || r.calls["id"] != runs {
		t.Errorf("after the restart: %+v, %d runs", got, r.calls["id"]-runs)
	}
	k.Send("pods/u1", watchOf(k, 2, spec, "id", messages.Readiness))
	step(k, 40)
	if got := last(t, k).Containers[0].Results; got.Readiness != failed {
		t.Errorf("the probes fail since, and it says %+v", got)
	}

	k = newKit(t, dir, r, nil)
	k.Send("pods/u1", watchOf(k, 1, spec, "another", messages.Startup))
	k.RunWork()
	if got := words(k)[0].Containers[0].Results; got != (messages.ProbeResults{}) {
		t.Errorf("of another container it says %+v", got)
	}
}

// A record that cannot be read is no reason not to probe.
func TestAnUnreadableRecordIsMadeAnew(t *testing.T) {
	dir, r := folder(t), newRuntime()
	file := path(dir, "u1")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKit(t, dir, r, nil)
	k.Send("pods/u1", watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Readiness: command()}), "id",
		messages.Readiness))
	step(k, 2)
	if got := last(t, k).Containers[0].Results.Readiness; got != succeeded {
		t.Errorf("it says %q", got)
	}
	if rec, err := loadRecord(dir, "u1"); err != nil || rec.Containers["c"].Results.Readiness != succeeded {
		t.Errorf("on the disk: %+v, %v", rec, err)
	}
}

// A result is reported until the pod confirms it, and not afterwards.
func TestAWordIsReportedUntilItIsKnown(t *testing.T) {
	k := newKit(t, folder(t), newRuntime(), nil)
	spec := container("c", map[messages.ProbeKind]*v1.Probe{messages.Readiness: command()})
	w := watchOf(k, 1, spec, "id", messages.Readiness)
	k.Send("pods/u1", w)
	step(k, 2)
	words(k)
	step(k, 25)
	if got := words(k); len(got) != 2 {
		t.Errorf("told %d times again", len(got))
	}
	w.Generation, w.Containers[0].Known = 2, messages.ProbeResults{Readiness: succeeded}
	k.Send("pods/u1", w)
	if got := words(k); len(got) != 1 || got[0].Generation != 2 {
		t.Errorf("answered %+v", got)
	}
	step(k, 60)
	if got := words(k); len(got) > 0 {
		t.Errorf("told again: %+v", got)
	}
}

// The pod's results replace those on disk; this prober's own results replace both.
func TestWhomToBelieve(t *testing.T) {
	dir, r := folder(t), newRuntime()
	if err := saveRecord(dir, "u1", record{Containers: map[string]lastResults{"c": {ID: "id",
		Results: messages.ProbeResults{Readiness: succeeded, Startup: succeeded}}}}); err != nil {
		t.Fatal(err)
	}
	k := newKit(t, dir, r, nil)
	w := watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Startup: command(),
		messages.Readiness: command()}), "id", messages.Readiness)
	w.Containers[0].Known = messages.ProbeResults{Readiness: failed}
	k.Send("pods/u1", w)
	k.RunWork()
	if got := words(k)[0].Containers[0].Results; got != (messages.ProbeResults{Readiness: failed, Startup: succeeded}) {
		t.Errorf("first: %+v", got)
	}
	step(k, 2)
	k.Send("pods/u1", w)
	if got := last(t, k).Containers[0].Results; got.Readiness != succeeded {
		t.Errorf("after a run: %+v", got)
	}
}

// Only so many run at a time; those that wait run in the order of their times, and a pod that goes frees its workers.
func TestThePoolIsBounded(t *testing.T) {
	r := newRuntime()
	k := newKit(t, folder(t), r, func(o *Options) { o.Commands = 6 }) // one pod gets half
	p := command()
	p.PeriodSeconds = 1
	w := messages.WatchProbes{UID: "u1", Generation: 1}
	for i := range 10 {
		w.Containers = append(w.Containers, messages.WatchedContainer{
			Spec:      container(fmt.Sprintf("c%d", i), map[messages.ProbeKind]*v1.Probe{messages.Readiness: p}),
			ID:        fmt.Sprintf("id%d", i),
			StartedAt: k.Now(), Run: []messages.ProbeKind{messages.Readiness},
		})
	}
	k.Send("pods/u1", w)
	load := k.Work[0]
	k.Work = nil
	k.RunOne(load)
	k.Advance(10 * time.Second)
	if len(k.Work) != 3 {
		t.Fatalf("%d probes run at a time", len(k.Work))
	}
	first := k.Work[0]
	k.Work = k.Work[1:]
	k.RunOne(first)
	if n := len(k.Work); n < 3 || n > 4 { // one of them may be the record that is kept
		t.Errorf("after one has ended, %d are to run", n)
	}
	k.RunWork()
	for i := range 10 {
		if n := r.calls[fmt.Sprintf("id%d", i)]; n == 0 {
			t.Errorf("container %d was never probed", i)
		}
	}
	k.Send("pods/u1", messages.WatchProbes{UID: "u1", Generation: 2})
	k.RunWork()
	if got := last(t, k); got.Generation != 2 || len(got.Containers) > 0 {
		t.Errorf("it lets go: %+v", got)
	}
	if k.RunWork(); len(k.Pending()) > 0 {
		k.Advance(time.Hour)
		if len(k.Work) > 0 || len(k.Take()) > 0 {
			t.Errorf("something goes on: %v", k.Work)
		}
	}
}

// Probes of containers that were there before are spread over their period.
func TestNoThunderAfterARestart(t *testing.T) {
	at := 0.0
	k := newKit(t, folder(t), newRuntime(), func(o *Options) { o.Random = func() float64 { at += 0.1; return at - 0.05 } })
	w := messages.WatchProbes{UID: "u1", Generation: 1}
	for i := range 10 {
		w.Containers = append(w.Containers, messages.WatchedContainer{
			Spec:      container(fmt.Sprintf("c%d", i), map[messages.ProbeKind]*v1.Probe{messages.Liveness: command()}),
			ID:        fmt.Sprintf("id%d", i),
			StartedAt: k.Now().Add(-time.Hour), Run: []messages.ProbeKind{messages.Liveness},
		})
	}
	k.Send("pods/u1", w)
	k.RunWork()
	for i := range 10 {
		k.Advance(time.Second)
		n := 0
		for _, w := range k.Work {
			if w.Name == "probe" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("in second %d there are %d", i, n)
		}
		k.RunWork()
	}
}

// The answer that lets a pod's folder be removed waits until nothing is written there.
func TestPodRemoval_WaitsForProbeWrites(t *testing.T) {
	k := newKit(t, folder(t), newRuntime(), nil)
	k.Send("pods/u1", watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Readiness: command()}), "id",
		messages.Readiness))
	for i := 0; i < 10 && (len(k.Work) == 0 || k.Work[0].Name != "keep probe results"); i++ {
		if len(k.Work) > 0 {
			w := k.Work[0]
			k.Work = k.Work[1:]
			k.RunOne(w)
		}
		k.Advance(0)
	}
	words(k)
	k.Send("pods/u1", messages.WatchProbes{UID: "u1", Generation: 2})
	if got := words(k); len(got) > 0 {
		t.Fatalf("it lets go at once: %+v", got)
	}
	k.RunWork()
	if got := words(k); len(got) != 1 || got[0].Generation != 2 {
		t.Errorf("it told %+v", got)
	}
}

// Probes of one pod that hang leave workers for the others', and its end cuts them off.
func TestOnePodDoesNotStarveTheOthers(t *testing.T) {
	r := newRuntime()
	k := newKit(t, folder(t), r, func(o *Options) { o.Commands = 8 })
	p := command()
	greedy := messages.WatchProbes{UID: "u1", Generation: 1}
	for i := range 20 {
		r.hangs[fmt.Sprintf("id%d", i)] = true
		greedy.Containers = append(greedy.Containers, messages.WatchedContainer{
			Spec:      container(fmt.Sprintf("c%d", i), map[messages.ProbeKind]*v1.Probe{messages.Liveness: p}),
			ID:        fmt.Sprintf("id%d", i),
			StartedAt: k.Now(), Run: []messages.ProbeKind{messages.Liveness},
		})
	}
	k.Send("pods/u1", greedy)
	load := k.Work[0]
	k.Work = nil
	k.RunOne(load)
	k.Advance(time.Second)
	if len(k.Work) != 4 {
		t.Fatalf("%d of its probes run", len(k.Work))
	}
	hanging := k.Work
	k.Work = nil
	for i := range 3 {
		w := watchOf(k, 1, container("other", map[messages.ProbeKind]*v1.Probe{messages.Liveness: p}), fmt.Sprintf("other%d", i),
			messages.Liveness)
		w.UID = fmt.Sprintf("u%d", i+2)
		k.Send(messages.PodAddress(w.UID), w)
		k.RunWork()
		k.Advance(time.Second)
		k.RunWork()
		if r.calls[w.Containers[0].ID] == 0 {
			t.Errorf("pod %s is not probed", w.UID)
		}
	}
	k.Send("pods/u1", messages.WatchProbes{UID: "u1", Generation: 2})
	for _, w := range hanging {
		k.RunOne(w) // it would hang for ever
	}
	clear(r.hangs)
	k.Advance(time.Hour)
	if k.RunWork(); r.calls["id19"] > 0 {
		t.Error("a probe that waited for a worker ran after its pod had gone")
	}
}

// The pod gets the output of a failing probe, from the first failure and at each change, until the probe succeeds.
func TestWhatAFailingProbeSays(t *testing.T) {
	r := newRuntime()
	k := newKit(t, folder(t), r, nil)
	p := command()
	p.PeriodSeconds, p.FailureThreshold = 5, 9
	k.Send("pods/u1", watchOf(k, 1, container("c", map[messages.ProbeKind]*v1.Probe{messages.Startup: p}), "id", messages.Startup))
	var since time.Time
	for i, c := range []struct {
		code int32
		said string // "-": no report
	}{{1, "command ended with code 1"}, {1, "-"}, {2, "command ended with code 2"}, {0, ""}} {
		r.codes["id"] = c.code
		if i == 0 {
			k.RunWork()
			k.Advance(0)
			k.RunWork()
		} else {
			step(k, 5)
		}
		all := words(k)
		if (len(all) == 0) != (c.said == "-") {
			t.Fatalf("run %d: told %+v", i, all)
		}
		if len(all) == 0 {
			continue
		}
		failing := all[len(all)-1].Containers[0].Failing
		if c.said == "" {
			if len(failing) > 0 {
				t.Errorf("run %d: %+v", i, failing)
			}
			continue
		}
		if len(failing) != 1 || failing[0].Kind != messages.Startup || failing[0].Said != c.said {
			t.Fatalf("run %d: %+v, want %q", i, failing, c.said)
		}
		if since.IsZero() {
			since = failing[0].Since
		}
		if !failing[0].Since.Equal(since) {
			t.Errorf("run %d: it fails since %v, want %v", i, failing[0].Since, since)
		}
	}
}
