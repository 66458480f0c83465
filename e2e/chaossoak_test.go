//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	soakChurn    = 4        // pods that come and go beside the steady ones
	soakMemory   = 64 << 10 // KiB that the agent may have more than before; 12 MiB of it are the flight recorder's
	soakRoutines = 50       // goroutines that it may have more than before: requests and connections come and go
	soakLease    = 20       // seconds
)

// soak is a node with broken actors while pods come and go.
type soak struct {
	*testing.T
	c        *cluster.Cluster
	s        *stack.Stack
	a        *stack.Agent
	ns, node string // of the steady pods, which have the namespace to themselves
	others   string // the namespace of those that come and go
	rng      *rand.Rand

	rules     map[uint64]ruleDone
	recovered []time.Duration // from the end of an actor that was killed until it answered again
	kills     map[string]int  // by kind
	alive     []string        // pods that came, and are to go
	came      map[types.UID]bool
}

// comeOrGo makes a pod, or has one go.
func (s *soak) comeOrGo(i int) {
	s.Helper()
	if n := len(s.alive); n == soakChurn || n > 0 && s.rng.IntN(2) == 0 {
		which := s.rng.IntN(n)
		remove(s.T, s.c, s.others, s.alive[which])
		s.alive = slices.Delete(s.alive, which, which+1)
		return
	}
	name := fmt.Sprintf("churn%d", i)
	s.came[create(s.T, s.c, s.others, s.node, manifest(s.s, name, oneSecond)).UID] = true
	s.alive = append(s.alive, name)
}

// gone waits until only the steady pods remain: in the API server and the runtime, and without folders, logs and cgroups of
// others.
func (s *soak) gone(steady []corev1.Pod) {
	s.Helper()
	awaitAgreement(s.T, s.c, s.s, s.node, len(steady))
	stays := map[string]bool{}
	for i := range steady {
		stays[string(steady[i].UID)] = true
	}
	await(s.T, func() error {
		containers, err := s.s.CRI().ListContainers(s.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			return err
		}
		sandboxes, err := s.s.CRI().ListPodSandbox(s.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		for _, c := range containers.Containers {
			if !stays[c.Labels[stack.UIDLabel]] {
				return fmt.Errorf("container %s is of no steady pod:\n%s", c.Id, whatIsThere(s.T, s.s))
			}
		}
		for _, b := range sandboxes.Items {
			if !stays[b.Metadata.Uid] {
				return fmt.Errorf("sandbox %s is of no steady pod:\n%s", b.Id, whatIsThere(s.T, s.s))
			}
		}
		return s.remains()
	})
}

// remains looks at the disk and the cgroups for pods that came.
func (s *soak) remains() error {
	var names []string
	for _, dir := range []string{s.a.RootDir + "/pods", s.a.PodLogsDir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			names = append(names, dir+"/"+e.Name())
		}
	}
	points, err := namespaces.Cgroups()
	if err != nil {
		return err
	}
	for _, point := range points {
		below, err := namespaces.Below(point)
		if err != nil {
			return err
		}
		names = append(names, below...)
	}
	for _, name := range names {
		for uid := range s.came {
			if strings.Contains(name, string(uid)) {
				return fmt.Errorf("a pod is gone, and %s is left", name)
			}
		}
	}
	return nil
}

// steadyPods runs pods with two containers, of which one is probed; the more pods, the less often.
func (s *soak) steadyPods(n int) []corev1.Pod {
	s.Helper()
	for i := range n {
		create(s.T, s.c, s.ns, s.node, manifest(s.s, fmt.Sprintf("steady%d", i), fmt.Sprintf(`terminationGracePeriodSeconds: 1
containers:
- name: c
  image: HELLO
  args: [sleep]
  readinessProbe: {periodSeconds: %d, timeoutSeconds: 60, exec: {command: [/hello, exit, "0"]}}
- {name: d, image: HELLO, args: [sleep]}`, 1+n/5)))
	}
	return awaitAgreement(s.T, s.c, s.s, s.node, n)
}

// compare checks that the steady pods noticed nothing.
func (s *soak) compare(before []corev1.Pod) {
	s.Helper()
	now, err := podsOf(s.T, s.c, s.node)
	must(s.T, err)
	byName := map[string]*corev1.Pod{}
	for i := range now {
		byName[now[i].Name] = &now[i]
	}
	for i := range before {
		was, is := &before[i], byName[before[i].Name]
		if is == nil || is.UID != was.UID {
			s.Errorf("pod %s is gone", was.Name)
			continue
		}
		if !slices.Equal(idsIn(is), idsIn(was)) {
			s.Errorf("pod %s has the containers %v, and had %v", was.Name, idsIn(is), idsIn(was))
		}
		if readySince(is) != readySince(was) {
			s.Errorf("pod %s was not ready for a time: %s, and %s before", was.Name, readySince(is), readySince(was))
		}
		for _, c := range is.Status.ContainerStatuses {
			if c.RestartCount != 0 {
				s.Errorf("container %s of pod %s was restarted %d times: %+v", c.Name, is.Name, c.RestartCount,
					c.LastTerminationState)
			}
		}
	}
}

// number is one of the environment: CHAOS_ACTIONS, CHAOS_PODS, CHAOS_SEED.
func number(t *testing.T, name string, otherwise int) int {
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

// Over a real runtime and API server, actors of all kinds are killed and paused, and their messages lost, late, doubled and
// reordered, one after another, while pods come and go. The steady pods notice nothing, the node stays ready and renews its
// lease, removed pods leave nothing, and the agent's memory is as before. CHAOS_ACTIONS, CHAOS_PODS and CHAOS_SEED make it a long
// test: see task chaos-soak-containerd.
func TestChaosSoakOnContainerd(t *testing.T) {
	actions, n, seed := number(t, "CHAOS_ACTIONS", 40), number(t, "CHAOS_PODS", 6), number(t, "CHAOS_SEED", 1)
	c := cluster.Shared(t)
	node, ns := c.Node(t), c.Namespace(t)
	st, a := inCluster(t, c, node, func(a *stack.Agent) {
		a.Args = append(a.Args, "--enable-chaos")
		a.Config["maxPods"], a.Config["nodeLeaseDurationSeconds"], a.Config["nodeStatusUpdateFrequency"] = n+50, soakLease, "1s"
	})
	s := &soak{T: t, c: c, s: st, a: a, ns: ns, others: c.Namespace(t), node: node.Name, rng: rand.New(rand.NewPCG(uint64(seed), 0)),
		rules: map[uint64]ruleDone{}, kills: map[string]int{}, came: map[types.UID]bool{}}
	steady := s.steadyPods(n)
	before, err := st.Containers(t.Context())
	must(t, err)
	vigil := keepVigil(t, c, node, ns)
	_, goroutines := s.look()
	memory, began := s.resident(), time.Now()

	for i := range actions {
		s.comeOrGo(i)
		if victim := s.victim(); s.rng.IntN(2) == 0 {
			s.kill(victim)
		} else {
			s.disturb(victim)
		}
	}
	s.readRules()
	took := time.Since(began)
	_, _ = a.Command(t.Context(), "chaos", "stop", "--all")
	for _, name := range s.alive {
		remove(t, c, s.others, name)
	}
	s.gone(steady)
	var after, routines int
	await(t, func() error { // Go gives memory back when it gets to it
		actors, now := s.look()
		for _, actor := range actors {
			if actor.State != "running" {
				return fmt.Errorf("actor %s of %s is %s", actor.Path, actor.Pod, actor.State)
			}
		}
		if after, routines = s.resident(), now; after > memory+soakMemory || now > goroutines+soakRoutines {
			return fmt.Errorf("the agent has %d KiB and %d goroutines, and had %d and %d", after, now, memory, goroutines)
		}
		return nil
	})
	settled := time.Since(began) - took
	s.tell(seed, n, took, settled)
	t.Logf("memory %d MiB before, %d MiB after; goroutines %d before, %d after", memory>>10, after>>10, goroutines, routines)
	vigil.end(t)
	s.compare(steady)
	asStarted(t, st, before)
	for i := range steady {
		remove(t, c, ns, steady[i].Name)
	}
	cleared(t, st, a)
	await(t, func() error {
		left, err := podsOf(t, c, node.Name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the API server still has %d pods, one of them %+v", len(left), left[0])
		}
		return err
	})
}

// tell prints the actions. A rule without an effect is not a failure: its actor may have ended, or have had no message.
func (s *soak) tell(seed, pods int, took, settled time.Duration) {
	s.Helper()
	rules, acted, spared := map[string]int{}, map[string]int{}, 0
	for _, r := range s.rules {
		rules[r.Verb]++
		acted[r.Verb] += r.Acted
		spared += r.Spared
	}
	s.Logf("seed %d, %d steady pods, %d that came: %d actions %v in %s, and settled %s later", seed, pods, len(s.came), len(s.rules),
		rules, took.Round(time.Millisecond), settled.Round(time.Millisecond))
	s.Logf("acted %v times, spared %d; killed by kind: %v", acted, spared, s.kills)
	for kind, n := range s.kills {
		if n == 0 && len(s.rules) >= 400 {
			s.Errorf("no actor of kind %s was killed", kind)
		}
	}
	if len(s.recovered) == 0 {
		s.Fatal("no actor was killed and ran again")
	}
	slices.Sort(s.recovered)
	at := func(p float64) time.Duration { return s.recovered[int(p*float64(len(s.recovered)-1))] }
	s.Logf("recovery from a kill: p50 %s, p99 %s, longest %s", at(0.5), at(0.99), at(1))
}
