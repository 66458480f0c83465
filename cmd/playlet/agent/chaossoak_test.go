package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// envNumber is a number of the environment: CHAOS_ACTIONS, CHAOS_PODS, CHAOS_SEED.
func envNumber(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no number of things", name, text)
	}
	return n
}

// soak is a node with short-lived pods, while actors of all kinds are killed.
type soak struct {
	*clusterRig
	rng    *rand.Rand
	steady int // pods that stay
	falls  []string
	killed map[supervisors.Kind]int
}

const soakChurn = 4 // pods that come and go beside the steady ones

// falseReady is the time for which a pod may be published as ready without one of its containers: the report of the end may be
// late.
const falseReady = 10 * time.Second

// watches collects, until stop is closed, each steady pod that was not ready, and each container that did not run although its
// pod was published as ready.
func (s *soak) watches(stop <-chan struct{}, done chan<- []string) {
	said, board := map[string]bool{}, s.agent.observatory.board // the agent goes when the test fails
	since := map[string]time.Time{}
	for {
		now := board.Now()
		running := map[string]bool{}
		for _, c := range s.runtime.Snapshot().Containers {
			running[c.ID] = c.Running()
		}
		wrong := map[string]time.Time{}
		for i := range now.Pods {
			p := &now.Pods[i]
			if strings.HasPrefix(p.Pod.Name, "steady") && readiness(p) == v1.ConditionFalse {
				said[p.Pod.Name+" was not ready, in phase "+p.Phase] = true
			}
			if readiness(p) != v1.ConditionTrue || p.Ending != "" {
				continue
			}
			for _, c := range p.Status.ContainerStatuses {
				_, id, _ := strings.Cut(c.ContainerID, "://")
				if key := p.Pod.Name + "/" + c.Name + " " + id; !running[id] {
					wrong[key] = cmp.Or(since[key], time.Now())
					if time.Since(wrong[key]) > falseReady {
						said[key+" does not run, and its pod is told as ready"] = true
					}
				}
			}
		}
		since = wrong
		select {
		case <-time.After(5 * time.Millisecond):
		case <-stop:
			done <- slices.Sorted(maps.Keys(said))
			return
		}
	}
}

func readiness(p *pods.PublishedPod) v1.ConditionStatus {
	if p.Status == nil {
		return v1.ConditionUnknown
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

// kill kills a random actor of a random kind, and returns how long it took until it answered and the node knew all of its pods
// again; false where its supervisor would not bear it, or where it is gone for good, as a pod that was removed.
func (s *soak) kill() (time.Duration, bool) {
	byKind := map[supervisors.Kind][]messages.Address{}
	for _, a := range s.agent.system.Actors() {
		byKind[s.agent.system.KindOf(a)] = append(byKind[s.agent.system.KindOf(a)], a)
	}
	kinds := slices.Sorted(maps.Keys(byKind))
	kind := kinds[s.rng.IntN(len(kinds))]
	victim := byKind[kind][s.rng.IntN(len(byKind[kind]))]
	before, there := s.agent.system.VitalsOf(victim)
	if victim == "" || !there || before.State != supervisors.Running {
		return 0, false
	}
	began := time.Now()
	rule, err := s.agent.observatory.chaos.Add(chaos.Rule{Verb: chaos.Kill, Target: string(victim), Seed: s.rng.Uint64() | 1})
	if err != nil {
		s.t.Fatal(err)
	}
	defer s.agent.observatory.chaos.Stop(rule.ID)
	// A question that was lost is put again after 10 s, and one in thirty is: two or three in a row are a matter of time.
	for time.Since(began) < waitLimit {
		v, there := s.agent.system.VitalsOf(victim)
		switch {
		case !there:
			return 0, false
		case v.State == supervisors.Running && v.Since.After(before.Since) && s.heals(victim):
			s.killed[kind]++
			return time.Since(began), true
		case v.State == supervisors.Quarantined:
			s.falls = append(s.falls, fmt.Sprintf("%s is in quarantine: %s", victim, v.Failure.Reason))
			return 0, false
		case v.State == supervisors.Running && time.Since(began) > 500*time.Millisecond && s.spared(rule.ID):
			return 0, false
		}
		time.Sleep(time.Millisecond)
	}
	s.falls = append(s.falls, fmt.Sprintf("%s did not run again within %s of its end", victim, waitLimit))
	return 0, false
}

// heals reports whether the actor answers, and the node knows all running and all desired pods.
func (s *soak) heals(victim messages.Address) bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	_, err := s.agent.system.Ask(ctx, victim, messages.GetInspection{})
	return err == nil && s.agent.observatory.board.Now().Complete()
}

func (s *soak) spared(id uint64) bool {
	for _, r := range s.agent.observatory.chaos.List() {
		if r.ID == id {
			return r.Acted == 0
		}
	}
	return true
}

// TestChaosSoak: pods come and go, and a random actor of any kind is killed, one after another, while messages are lost, late,
// doubled and overtaken, and actors stand still. The pods that stay notice nothing, those that go are gone, and nothing is
// left. CHAOS_ACTIONS, CHAOS_PODS and CHAOS_SEED make it a long one: see task chaos-soak.
func TestChaosSoak(t *testing.T) {
	actions, seed := envNumber(t, "CHAOS_ACTIONS", 500), envNumber(t, "CHAOS_SEED", 1)
	s := &soak{clusterRig: newClusterRig(t, sim.Options{}, "--enable-chaos", "--max-pods=250"), steady: envNumber(t, "CHAOS_PODS", 10),
		rng: rand.New(rand.NewPCG(uint64(seed), 0)), killed: map[supervisors.Kind]int{}}
	s.measured = true
	pod := func(name string) string { return manifest(name, "Always", nil, []string{"one forever", "two forever"}) }
	for i := range s.steady {
		s.write(fmt.Sprintf("steady%d.yaml", i), pod(fmt.Sprintf("steady%d", i)))
	}
	s.start(nil)
	s.await("the pods", func(n sim.Snapshot) bool { return n.Running() == 2*s.steady })
	ready := func() bool {
		n := 0
		for _, p := range s.agent.observatory.board.Now().Pods {
			if strings.HasPrefix(p.Pod.Name, "steady") && readiness(&p) == v1.ConditionTrue {
				n++
			}
		}
		return n == s.steady
	}
	s.eventually("all pods are ready", ready)
	containers := map[string]string{}
	for _, c := range s.runtime.Snapshot().Containers {
		containers[c.PodName+"/"+c.Name] = c.ID
	}
	goroutines, heap := settledFigures()
	stop, done := make(chan struct{}), make(chan []string, 1)
	go s.watches(stop, done)

	forever := metav1.Duration{Duration: time.Hour}
	late := metav1.Duration{Duration: 200 * time.Millisecond}
	for _, r := range []chaos.Rule{
		{Verb: chaos.Drop, Probability: 0.03}, {Verb: chaos.Duplicate, Probability: 0.05}, {Verb: chaos.Delay, Probability: 0.05, Duration: late},
		{Verb: chaos.Reorder, Probability: 0.05, Duration: late}, {Verb: chaos.Pause, Probability: 0.02, Duration: late},
	} {
		r.Target, r.Count, r.For, r.Seed = "**", -1, forever, uint64(seed)
		if _, err := s.agent.observatory.chaos.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	var recovered []time.Duration
	began := time.Now()
	limit := time.Duration(actions) * 250 * time.Millisecond
	rules := s.agent.observatory.chaos.List()
	count := func() (n int) {
		for _, r := range s.agent.observatory.chaos.List() {
			for _, in := range rules {
				if r.ID == in.ID {
					n += r.Acted
				}
			}
		}
		return n + len(recovered)
	}
	for i := 0; count() < actions; i++ {
		if time.Since(began) > limit {
			t.Fatalf("only %d actions within %s", count(), limit)
		}
		name := fmt.Sprintf("churn%d", i%soakChurn)
		if _, err := os.Stat(s.manifests + "/" + name + ".yaml"); err == nil {
			s.remove(name + ".yaml")
		} else {
			s.write(name+".yaml", pod(name))
		}
		if took, ok := s.kill(); ok {
			recovered = append(recovered, took)
		}
		time.Sleep(time.Duration(s.rng.IntN(20)) * time.Millisecond)
	}
	total := count()
	byVerb := map[chaos.Verb]int{chaos.Kill: len(recovered)}
	for _, r := range s.agent.observatory.chaos.Stop(0) {
		byVerb[r.Verb] += r.Acted
	}
	took := time.Since(began)
	for i := range soakChurn {
		_ = os.Remove(fmt.Sprintf("%s/churn%d.yaml", s.manifests, i))
	}
	s.await("what went is gone", func(n sim.Snapshot) bool { return len(n.Sandboxes) == s.steady && len(n.Containers) == 2*s.steady })
	s.eventually("all is as it was", func() bool {
		return ready() && len(s.agent.observatory.board.Now().Pods) == s.steady && len(s.agent.system.Quarantined()) == 0
	})
	close(stop)
	for _, text := range <-done {
		t.Error(text)
	}
	for _, c := range s.runtime.Snapshot().Containers {
		if id := containers[c.PodName+"/"+c.Name]; id != c.ID {
			t.Errorf("container %s of %s is another one than before", c.Name, c.PodName)
		}
	}
	s.eventually("the API server has the pods that stay, ready, and no others", func() bool {
		list, err := s.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != s.steady {
			return false
		}
		for i := range list.Items {
			if readiness(&pods.PublishedPod{Status: &list.Items[i].Status}) != v1.ConditionTrue {
				return false
			}
		}
		return true
	})
	for _, f := range s.falls {
		t.Error(f)
	}
	checkViolations(t, s.rig)
	longest := 0
	for line := range strings.Lines(s.log.String()) {
		longest = max(longest, len(line))
	}
	s.log.mu.Lock() // the test's own memory is no leak
	s.log.b = bytes.Buffer{}
	s.log.mu.Unlock()
	s.api.ClearActions()
	slices.Sort(recovered)
	at := func(p float64) time.Duration { return recovered[int(p*float64(len(recovered)-1))] }
	s.eventually("no goroutine is left of it", func() bool { n, _ := settledFigures(); return n <= goroutines+10 })
	after, heapAfter := settledFigures()
	t.Logf("seed %d: %d actions in %s: %v", seed, total, took.Round(time.Millisecond), byVerb)
	t.Logf("killed: %v", s.killed)
	if kinds := s.kinds(); actions >= 5000 {
		for _, k := range kinds {
			if s.killed[k] == 0 {
				t.Errorf("no actor of kind %s was killed", k)
			}
		}
	}
	t.Logf("recovery from a kill: p50 %s, p99 %s, longest %s", at(0.5), at(0.99), at(1))
	t.Logf("goroutines %d before, %d after; heap %d MiB before, %d MiB after", goroutines, after, heap>>20, heapAfter>>20)
	t.Logf("longest line of the log: %d KiB", longest>>10)
	if heapAfter > heap+48<<20 { // 12 of it are the flight recorder's
		t.Errorf("the heap has grown from %d to %d MiB", heap>>20, heapAfter>>20)
	}
}

// kinds returns all kinds of running actors except the root, whose end is the end of the process.
func (s *soak) kinds() []supervisors.Kind {
	all := map[supervisors.Kind]bool{}
	for _, a := range s.agent.system.Actors() {
		if a != messages.Node {
			all[s.agent.system.KindOf(a)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func settledFigures() (goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}
