package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// stand is a tree that stands still.
type stand struct{ nudged []messages.Address }

func (s *stand) Vitals() []supervisors.Vitals {
	return []supervisors.Vitals{{Kind: "node"}, {Path: "images", Kind: "images"}, {Path: "pods/u1", Kind: "pod"}, {Path: "pods/u2", Kind: "pod"},
		{Path: "volumes", Kind: "volumes"}}
}

func (s *stand) Nudge(a messages.Address) { s.nudged = append(s.nudged, a) }

type work struct{}

func newEngine(t *testing.T, report func(string)) (*Engine, *stand, *clocktesting.FakeClock) {
	t.Helper()
	c, s := clocktesting.NewFakeClock(time.Unix(1000, 0)), &stand{}
	e := New(Options{Clock: c, Pod: podOf, Report: report})
	e.Attach(s)
	t.Cleanup(e.Close)
	return e, s, c
}

func add(t *testing.T, e *Engine, r Rule) Status {
	t.Helper()
	s, err := e.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// to is a delivery from another actor.
func to(a messages.Address) supervisors.Delivery {
	return supervisors.Delivery{Actor: a, From: "runtime", Kind: supervisors.Kind(a), Message: work{}}
}

func of(t *testing.T, e *Engine, id uint64) Status {
	t.Helper()
	all := e.List()
	i := slices.IndexFunc(all, func(s Status) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("rule %d is not listed: %+v", id, all)
	}
	return all[i]
}

// until waits for a condition that another goroutine establishes. Its limit only ends a hang.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestEachVerbHasItsEffect(t *testing.T) {
	for verb, want := range map[Verb]supervisors.Effect{
		Kill: supervisors.Panic, Pause: supervisors.Hold, Delay: supervisors.Delay, Drop: supervisors.Drop,
		Duplicate: supervisors.Duplicate, Reorder: supervisors.Delay,
	} {
		e, _, _ := newEngine(t, nil)
		r := Rule{Verb: verb, Target: "volumes", Message: "w*", Count: 2}
		if verb == Pause || verb == Delay || verb == Reorder {
			r.Duration = metav1.Duration{Duration: 20 * time.Second}
		}
		added := add(t, e, r)
		other := to("volumes")
		other.Message = messages.Started{}
		for _, d := range []supervisors.Delivery{to("images"), other} {
			if v := e.Before(d); v.Effect != supervisors.None {
				t.Errorf("%s: %+v at a delivery that is not chosen", verb, v)
			}
		}
		own := to("volumes")
		own.From = "volumes"
		strict := verb == Kill || verb == Pause
		if v := e.Before(own); (v.Effect == want) != strict {
			t.Errorf("%s: %+v at a message of its own", verb, v)
		}
		for !strict && of(t, e, added.ID).Acted < 1 || strict && of(t, e, added.ID).Acted < 2 {
			v := e.Before(to("volumes"))
			late := v.For == 20*time.Second
			if verb == Reorder {
				late = v.For >= 0 && v.For < 20*time.Second
			}
			if v.Effect != want || r.Duration.Duration > 0 && !late || !strings.HasPrefix(v.Why, "rule 1, "+string(verb)+" volumes --message=w* --seed=1") {
				t.Fatalf("%s: %+v", verb, v)
			}
		}
	}
}

// A rule ends with its count, by its time, by hand; and an engine without rules costs a delivery next to nothing.
func TestARuleEnds(t *testing.T) {
	e, _, c := newEngine(t, nil)
	d := to("volumes")
	if n := testing.AllocsPerRun(100, func() { e.Before(d) }); n > 0 {
		t.Errorf("%v allocations without a rule", n)
	}
	counted := add(t, e, Rule{Verb: Drop, Target: "volumes", Count: 2})
	for i := range 4 {
		if v := e.Before(d); (v.Effect == supervisors.Drop) != (i < 2) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if !of(t, e, counted.ID).Over {
		t.Error("a rule that has done all is in force")
	}
	timed := add(t, e, Rule{Verb: Drop, Target: "volumes", Count: -1})
	c.Step(DefaultFor)
	until(t, "a rule lasts longer than its time", func() bool { return of(t, e, timed.ID).Over })
	stopped := add(t, e, Rule{Verb: Pause, Target: "volumes", Count: -1, For: metav1.Duration{Duration: time.Hour}})
	v := e.Before(d)
	if got := e.Stop(stopped.ID); len(got) != 1 || !got[0].Over || got[0].Acted != 1 || got[0].Actors["volumes"] != 1 {
		t.Errorf("%+v", got)
	}
	select {
	case <-v.Until:
	default:
		t.Error("what it holds does not go on")
	}
	if got := e.Stop(0); len(got) != 0 || e.Before(d).Effect != supervisors.None {
		t.Errorf("%+v", got)
	}
	for range keepEnded + 20 {
		add(t, e, Rule{Verb: Drop, Target: "volumes"})
	}
	e.Stop(0)
	if n := len(e.List()); n != keepEnded {
		t.Errorf("%d rules are kept", n)
	}
}

// A pause is as long as it is to be, though the rule has no more to do.
func TestARuleIsOverWhenItsPauseIs(t *testing.T) {
	e, _, c := newEngine(t, nil)
	s := add(t, e, Rule{Verb: Pause, Target: "volumes", Duration: metav1.Duration{Duration: 5 * time.Second}})
	if v := e.Before(to("volumes")); v.Effect != supervisors.Hold {
		t.Fatalf("%+v", v)
	}
	c.Step(4 * time.Second)
	if of(t, e, s.ID).Over {
		t.Error("it is over before its pause")
	}
	c.Step(time.Second)
	until(t, "it lasts longer than its pause", func() bool { return of(t, e, s.ID).Over })
}

// To be killed or paused, an actor needs no message: as many as the rule may act on are sent one, the same for the same seed.
func TestKillAndPauseNeedNoMessage(t *testing.T) {
	var orders []string
	for range 2 {
		e, s, _ := newEngine(t, nil)
		add(t, e, Rule{Verb: Kill, Target: "**", Count: 2, Seed: 5, Force: true})
		if len(s.nudged) != 2 {
			t.Fatalf("%v", s.nudged)
		}
		var names []string
		for _, a := range s.nudged {
			names = append(names, string(a))
		}
		orders = append(orders, strings.Join(names, " "))
		for _, a := range []messages.Address{"images", "pods/u1", "pods/u2", "volumes"} { // which comes first is not the seed's
			if killed := e.Before(to(a)).Effect == supervisors.Panic; killed != slices.Contains(s.nudged, a) {
				t.Errorf("%s: killed %v, chosen %v", a, killed, s.nudged)
			}
		}
		s.nudged = nil
		add(t, e, Rule{Verb: Kill, Target: "**", Message: "work"})
		add(t, e, Rule{Verb: Drop, Target: "**"})
		if len(s.nudged) > 0 {
			t.Errorf("%v", s.nudged)
		}
		if got := e.Targets(Rule{Target: "pod/web"}); !slices.Equal(got, []messages.Address{"pods/u1"}) {
			t.Errorf("%v", got)
		}
	}
	if orders[0] != orders[1] {
		t.Error(orders)
	}
}

// Pods get new UIDs from the API server in each run of an experiment, so the seed chooses them by name.
func TestASeedChoosesPodsByTheirNames(t *testing.T) {
	for seed := range uint64(20) {
		r := Rule{Verb: Kill, Target: "pods/**", Count: 1, Seed: seed + 1, Force: true}
		var chosen []string
		for _, uids := range [][2]string{{"x1", "x2"}, {"y2", "y1"}, {"z9", "z3"}} {
			e := New(Options{Pod: func(uid string) (Pod, bool) {
				i := slices.Index(uids[:], uid)
				return Pod{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}, i >= 0
			}})
			e.Attach(pair(uids))
			s := add(t, e, r)
			for _, uid := range uids {
				e.Before(to(messages.PodAddress(uid)))
			}
			for a := range of(t, e, s.ID).Actors {
				chosen = append(chosen, fmt.Sprint(slices.Index(uids[:], a.PodUID())))
			}
			e.Close()
		}
		if len(chosen) != 3 || chosen[0] != chosen[1] || chosen[1] != chosen[2] {
			t.Errorf("seed %d: %v", seed+1, chosen)
		}
	}
}

// pair is a tree with the actors of two pods.
type pair [2]string

func (p pair) Vitals() (out []supervisors.Vitals) {
	for _, uid := range p {
		out = append(out, supervisors.Vitals{Path: messages.PodAddress(uid), Kind: "pod"})
	}
	return out
}

func (pair) Nudge(messages.Address) {}

// Without --force, an actor is not killed more often than its supervisor restarts it.
func TestKill_RespectsTheSupervisorsLimit(t *testing.T) {
	e, _, c := newEngine(t, nil)
	forever := metav1.Duration{Duration: time.Hour}
	s := add(t, e, Rule{Verb: Kill, Target: "stats", Count: -1, For: forever})
	kills := func() (n int) {
		for range 30 {
			if e.Before(to("stats")).Effect == supervisors.Panic {
				n++
			}
		}
		return n
	}
	if n := kills(); n != 4 { // five within a minute are restarted
		t.Errorf("%d kills", n)
	}
	if got := of(t, e, s.ID); got.Spared != 26 || got.Acted != 4 {
		t.Errorf("%+v", got)
	}
	c.Step(61 * time.Second)
	if n := kills(); n != 4 {
		t.Errorf("%d kills a minute later", n)
	}
	add(t, e, Rule{Verb: Kill, Target: "stats", Count: -1, Force: true})
	if n := kills(); n != 30 {
		t.Errorf("%d kills by force", n)
	}
}

// Many actions are one report.
func TestWhatWasDoneIsReported(t *testing.T) {
	reports := make(chan string, 10)
	e, _, c := newEngine(t, func(text string) { reports <- text })
	add(t, e, Rule{Verb: Drop, Target: "**", Count: -1})
	for range 50 {
		e.Before(to("volumes"))
		e.Before(to("images"))
	}
	c.Step(reportEvery)
	if got := <-reports; got != "playlet chaos injected 100 faults on purpose (rule 1: drop ** --seed=1) into 2 parts of the node agent: "+
		"images, volumes; containers keep running" {
		t.Error(got)
	}
	e.Before(to("volumes"))
	c.Step(reportEvery)
	if got := <-reports; !strings.Contains(got, "injected 101 faults") || len(reports) > 0 {
		t.Error(got, len(reports))
	}
	e.Before(to("volumes"))
	e.Close()
	close(reports)
	var all []string
	for text := range reports {
		all = append(all, text)
	}
	if len(all) == 0 || !strings.HasPrefix(all[len(all)-1], "playlet chaos injected ") || !strings.Contains(all[len(all)-1], " into 2 parts of the node agent: ") {
		t.Errorf("what was pending at the end is not reported: %q", all)
	}
}

// A rule that falls out of those that are kept was reported at its end; actors beyond five are counted.
func TestEachRuleIsReportedOnce(t *testing.T) {
	var mu sync.Mutex
	var all []string
	e, _, c := newEngine(t, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, text)
	})
	const rules = keepEnded + 50
	for range rules {
		add(t, e, Rule{Verb: Drop, Target: "images", Count: 1})
		e.Before(to("images"))
	}
	if len(all) != rules {
		t.Errorf("%d rules acted, and %d were reported", rules, len(all))
	}
	add(t, e, Rule{Verb: Drop, Target: "**", Count: 7})
	for _, a := range []messages.Address{"images", "volumes", "events", "prober", "stats", "logs", "status"} {
		e.Before(to(a))
	}
	if got := all[len(all)-1]; !strings.HasSuffix(got, " into 7 parts of the node agent: events, images, logs, prober, stats, 2 more; containers keep running") {
		t.Error(got)
	}
	e.Close()
	c.Step(reportEvery)
	if len(all) != rules+1 {
		t.Errorf("%d reports", len(all))
	}
}
