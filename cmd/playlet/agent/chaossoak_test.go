package agent

import (
	"bytes"
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

// soak is a node whose pods come and go while all kinds of its actors are broken.
type soak struct {
	*clusterRig
	rng    *rand.Rand
	steady int // pods that stay
	falls  []string
}

const soakChurn = 4 // pods that come and go beside the steady ones

// watches says of each steady pod that was found not ready, once, until it is told to stop.
func (s *soak) watches(stop <-chan struct{}, done chan<- []string) {
	said, board := map[string]bool{}, s.agent.board // the agent goes when the test fails
	for {
		now := board.Now()
		for i := range now.Pods {
			if p := &now.Pods[i]; strings.HasPrefix(p.Pod.Name, "steady") && readiness(p) == v1.ConditionFalse {
				said[p.Pod.Name+" in phase "+p.Phase] = true
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-stop:
			done <- slices.Sorted(maps.Keys(said))
			return
		}
	}
}

func readiness(p *pods.Published) v1.ConditionStatus {
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

// kill kills a random actor, and returns how long it took until it ran again; false where its supervisor would not bear it, or where
// it is gone for good, as a pod that was removed.
func (s *soak) kill() (time.Duration, bool) {
	all := s.agent.system.Actors()
	victim := all[s.rng.IntN(len(all))]
	before, there := s.agent.system.VitalsOf(victim)
	if victim == "" || !there || before.State != supervisors.Running {
		return 0, false
	}
	began := time.Now()
	rule, err := s.agent.chaos.Add(chaos.Rule{Verb: chaos.Kill, Target: string(victim), Seed: s.rng.Uint64() | 1})
	if err != nil {
		s.t.Fatal(err)
	}
	defer s.agent.chaos.Stop(rule.ID)
	for time.Since(began) < 20*time.Second {
		v, there := s.agent.system.VitalsOf(victim)
		switch {
		case !there:
			return 0, false
		case v.State == supervisors.Running && v.Since.After(before.Since):
			return time.Since(began), true
		case v.State == supervisors.Quarantined:
			s.falls = append(s.falls, fmt.Sprintf("%s is in quarantine: %s", victim, v.Failure.Reason))
			return 0, false
		case v.State == supervisors.Running && time.Since(began) > 500*time.Millisecond && s.spared(rule.ID):
			return 0, false
		}
		time.Sleep(time.Millisecond)
	}
	s.falls = append(s.falls, fmt.Sprintf("%s did not run again within 20s of its end", victim))
	return 0, false
}

func (s *soak) spared(id uint64) bool {
	for _, r := range s.agent.chaos.List() {
		if r.ID == id {
			return r.Acted == 0
		}
	}
	return true
}

// TestChaosSoak: pods come and go, and a random actor of any kind is killed, one after another, while messages are lost, late, doubled
// and overtaken, and actors stand still. The pods that stay notice nothing, those that go are gone, and nothing is left.
// CHAOS_ACTIONS, CHAOS_PODS and CHAOS_SEED make it a long one: see task chaos-soak.
func TestChaosSoak(t *testing.T) {
	actions, seed := envNumber(t, "CHAOS_ACTIONS", 500), envNumber(t, "CHAOS_SEED", 1)
	s := &soak{clusterRig: newClusterRig(t, sim.Options{}, "--enable-chaos", "--max-pods=250"), steady: envNumber(t, "CHAOS_PODS", 10),
		rng: rand.New(rand.NewPCG(uint64(seed), 0))}
	s.measured = true
	pod := func(name string) string { return manifest(name, "Always", nil, []string{"one forever", "two forever"}) }
	for i := range s.steady {
		s.write(fmt.Sprintf("steady%d.yaml", i), pod(fmt.Sprintf("steady%d", i)))
	}
	s.start(nil)
	s.await("the pods", func(n sim.Snapshot) bool { return n.Running() == 2*s.steady })
	ready := func() bool {
		n := 0
		for _, p := range s.agent.board.Now().Pods {
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
		if _, err := s.agent.chaos.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	var recovered []time.Duration
	began := time.Now()
	limit := time.Duration(actions) * 250 * time.Millisecond
	rules := s.agent.chaos.List()
	count := func() (n int) {
		for _, r := range s.agent.chaos.List() {
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
	for _, r := range s.agent.chaos.Stop(0) {
		byVerb[r.Verb] += r.Acted
	}
	took := time.Since(began)
	for i := range soakChurn {
		_ = os.Remove(fmt.Sprintf("%s/churn%d.yaml", s.manifests, i))
	}
	s.await("what went is gone", func(n sim.Snapshot) bool { return len(n.Sandboxes) == s.steady && len(n.Containers) == 2*s.steady })
	s.eventually("all is as it was", func() bool {
		return ready() && len(s.agent.board.Now().Pods) == s.steady && len(s.agent.system.Quarantined()) == 0
	})
	close(stop)
	for _, text := range <-done {
		t.Errorf("a pod was not ready: %s", text)
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
			if readiness(&pods.Published{Status: &list.Items[i].Status}) != v1.ConditionTrue {
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
	s.log.mu.Lock() // what the test itself keeps is no leak
	s.log.b = bytes.Buffer{}
	s.log.mu.Unlock()
	s.api.ClearActions()
	slices.Sort(recovered)
	at := func(p float64) time.Duration { return recovered[int(p*float64(len(recovered)-1))] }
	s.eventually("no goroutine is left of it", func() bool { n, _ := settledFigures(); return n <= goroutines+10 })
	after, heapAfter := settledFigures()
	t.Logf("seed %d: %d actions in %s: %v", seed, total, took.Round(time.Millisecond), byVerb)
	t.Logf("recovery from a kill: p50 %s, p99 %s, longest %s", at(0.5), at(0.99), at(1))
	t.Logf("goroutines %d before, %d after; heap %d MiB before, %d MiB after", goroutines, after, heap>>20, heapAfter>>20)
	t.Logf("longest line of the log: %d KiB", longest>>10)
	if heapAfter > heap+48<<20 { // 12 of it are the flight recorder's
		t.Errorf("the heap has grown from %d to %d MiB", heap>>20, heapAfter>>20)
	}
}

func settledFigures() (goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}
