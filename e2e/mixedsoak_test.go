//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const mixedPods = 16 // pods of the mixed load at a time, beside static ones

// mixedSoak is a node under a mixed load. Its agent, runtime, API server and etcd are killed and frozen.
type mixedSoak struct {
	*testing.T
	c               *cluster.Cluster
	s               *stack.Stack
	a               *stack.Agent
	ns, node, trace string
	others          sync.WaitGroup
	forced          sync.Map // UIDs of pods that were deleted without grace
	unknown         sync.Map // UIDs of pods with an unknownEnd

	runtimeKilled atomic.Int64 // when the runtime was killed last, in nanoseconds

	mu         sync.Mutex
	counts     map[string]int
	violations []string
}

func (m *mixedSoak) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
}

func (m *mixedSoak) violation(format string, args ...any) {
	text := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	m.mu.Lock()
	m.violations = append(m.violations, text)
	m.mu.Unlock()
	m.Errorf("VIOLATION %s", text)
}

func (m *mixedSoak) killRuntime() error {
	err := m.s.KillRuntime()
	m.runtimeKilled.Store(time.Now().UnixNano())
	return err
}

// faults breaks one part after another until ctx ends, and leaves all parts running.
func (m *mixedSoak) faults(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		var err error
		began := time.Now()
		what := ""
		switch n := rng.IntN(20); {
		case n < 9:
			what = "agent killed"
			m.sleep(ctx, rng, 3*time.Second, 30*time.Second)
			if err = m.a.Kill9(); err == nil {
				err = m.a.Start()
			}
		case n < 12:
			what = "actors killed"
			for range 5 {
				target := []string{"pods/*", "kind/pod", "kind/container", "kind/runtime", "kind/volumes", "kind/status", "**"}[rng.IntN(7)]
				within, cancel := context.WithTimeout(ctx, 20*time.Second)
				_, _ = m.a.Command(within, "chaos", "kill", target, "--wait=false", "--for=5s")
				cancel()
				m.sleep(ctx, rng, 500*time.Millisecond, 2*time.Second)
			}
		case n < 14:
			what = "runtime killed"
			if err = m.killRuntime(); err == nil {
				m.sleep(ctx, rng, 100*time.Millisecond, 8*time.Second)
				err = m.s.StartRuntime()
			}
		case n < 15:
			what = "runtime ended"
			err = m.s.RestartRuntime()
		case n < 16:
			what = "runtime frozen"
			if err = m.s.FreezeRuntime(); err == nil {
				m.sleep(ctx, rng, time.Second, 20*time.Second)
				err = m.s.ThawRuntime()
			}
		case n < 17:
			what = "runtime and agent killed"
			if err = m.killRuntime(); err == nil {
				if err = m.a.Kill9(); err == nil {
					m.sleep(ctx, rng, 100*time.Millisecond, 4*time.Second)
					if err = m.a.Start(); err == nil {
						err = m.s.StartRuntime()
					}
				}
			}
		case n < 18:
			what = "API server frozen"
			if err = m.c.FreezeAPIServer(); err == nil {
				m.sleep(ctx, rng, 10*time.Second, time.Minute)
				err = m.c.ThawAPIServer()
			}
		case n < 19:
			what = "API server killed"
			if err = m.c.KillAPIServer(); err == nil {
				m.sleep(ctx, rng, 100*time.Millisecond, 10*time.Second)
				err = m.c.StartAPIServer()
			}
		default:
			what = "etcd killed"
			if err = m.c.KillEtcd(); err == nil {
				m.sleep(ctx, rng, 100*time.Millisecond, 10*time.Second)
				err = m.c.StartEtcd()
			}
		}
		if err != nil {
			m.violation("%s: %v", what, err)
			return
		}
		m.count(what)
		m.Logf("%s %s for %s", began.Format(time.TimeOnly), what, time.Since(began).Round(100*time.Millisecond))
		m.sleep(ctx, rng, time.Second, 10*time.Second)
	}
}

// calm waits until all pods are in the state of their kinds.
func (m *mixedSoak) calm() {
	began := time.Now()
	var last error
	for time.Since(began) < waitLimit {
		if last = m.converged(); last == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if last != nil {
		m.violation("not converged after %s: %v", waitLimit, last)
	}
	m.Logf("%s converged within %s", time.Now().Format(time.TimeOnly), time.Since(began).Round(time.Second))
	m.measure()
}

func (m *mixedSoak) converged() error {
	ctx, cancel := context.WithTimeout(m.Context(), 20*time.Second)
	defer cancel()
	list, err := m.c.Admin.CoreV1().Pods(m.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var wrong []string
	for i := range list.Items {
		p := &list.Items[i]
		k := kindOf(p)
		_, unknown := m.unknown.Load(p.UID)
		switch {
		case p.DeletionTimestamp != nil:
			wrong = append(wrong, fmt.Sprintf("pod %s is not gone since %s", p.Name, p.DeletionTimestamp))
		case k.phase != "" && p.Status.Phase != k.phase && !(unknown && over(p)):
			wrong = append(wrong, fmt.Sprintf("pod %s is %s, want %s", p.Name, p.Status.Phase, k.phase))
		case k.phase == "" && k.name != "crash" && ready(p) != nil:
			wrong = append(wrong, ready(p).Error())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d pods: %s", len(wrong), len(list.Items), strings.Join(wrong, "\n"))
	}
	return nil
}

// measure logs the memory, open files and goroutines of the agent.
func (m *mixedSoak) measure() {
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.a.PID()))
	s := &soak{T: m.T, a: m.a}
	actors, routines := s.look()
	m.Logf("agent: %d KiB, %d files, %d goroutines, %d actors", s.resident(), len(files), routines, len(actors))
}

// A node under a mixed load keeps its promises while its agent, its runtime, the API server and etcd are killed and frozen again
// and again, and has no leftovers at the end. MIXED_MINUTES is its length: see task mixed-soak.
func TestMixedSoak(t *testing.T) {
	minutes, seed := number(t, "MIXED_MINUTES", 1), number(t, "MIXED_SEED", 1)
	c := cluster.Start(t)
	n, ns := c.Node(t), c.Namespace(t)
	st, a := inCluster(t, c, n, func(a *stack.Agent) {
		quick(a)
		a.Args = append(a.Args, "--enable-chaos")
	})
	m := &mixedSoak{T: t, c: c, s: st, a: a, ns: ns, node: n.Name, trace: t.TempDir(), counts: map[string]int{}}
	_, err := c.Admin.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf"},
		Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Admin.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sec"},
		StringData: map[string]string{"s": "t"}}, metav1.CreateOptions{})
	must(t, err)
	watching, stop := context.WithCancel(t.Context())
	var keepers sync.WaitGroup
	keepers.Go(func() { m.keep(watching) })
	keepers.Go(func() { m.keepRuntime(watching) })
	began := time.Now()
	end := began.Add(time.Duration(minutes) * time.Minute)
	for round := uint64(0); time.Now().Before(end); round++ {
		until := time.Now().Add(5 * time.Minute)
		if until.After(end) {
			until = end
		}
		ctx, cancel := context.WithDeadline(t.Context(), until)
		var both sync.WaitGroup
		both.Go(func() { m.load(ctx, rand.New(rand.NewPCG(uint64(seed), 2*round))) })
		both.Go(func() { m.faults(ctx, rand.New(rand.NewPCG(uint64(seed), 2*round+1))) })
		both.Wait()
		cancel()
		m.calm()
	}
	for i := range 3 {
		_ = a.Remove(fmt.Sprintf("static%d.yaml", i))
	}
	must(t, c.Admin.CoreV1().Pods(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kind"}))
	m.others.Wait()
	for _, what := range slices.Sorted(maps.Keys(m.counts)) {
		t.Logf("%6d %s", m.counts[what], what)
	}
	await(t, func() error {
		left, err := podsOf(t, c, n.Name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the API server still has %d pods, one of them %+v", len(left), left[0])
		}
		return err
	})
	m.measure()
	stop()
	keepers.Wait()
	t.Logf("%s with %d violations:\n%s", time.Since(began).Round(time.Second), len(m.violations), strings.Join(m.violations, "\n"))
	nothing(t, st)
	must(t, st.SweepByForce()) // left in the runtime by a kill in the middle of a CRI call
	cleared(t, st, a)
}
