//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// insist repeats a request until it succeeds, like any client of an unreliable API server.
func insist(t *testing.T, do func() error) {
	t.Helper()
	await(t, func() error {
		if err := do(); err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// rollOut is pods that are made, or deleted, one after another while something goes wrong; some of them are static.
type rollOut struct {
	c        *cluster.Cluster
	s        *stack.Stack
	a        *stack.Agent
	ns, node string
}

func (r *rollOut) create(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	must(t, yaml.UnmarshalStrict([]byte(manifest(r.s, name, sleeper)), pod))
	pod.Spec.NodeName = r.node
	insist(t, func() error {
		_, err := r.c.Admin.CoreV1().Pods(r.ns).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
}

func (r *rollOut) remove(t *testing.T, name string) {
	t.Helper()
	insist(t, func() error { return r.c.Admin.CoreV1().Pods(r.ns).Delete(t.Context(), name, metav1.DeleteOptions{}) })
}

// removeMirror deletes the mirror pod of a static one as soon as it exists.
func (r *rollOut) removeMirror(t *testing.T, name string) {
	t.Helper()
	await(t, func() error {
		return r.c.Admin.CoreV1().Pods(r.ns).Delete(t.Context(), r.mirror(name), metav1.DeleteOptions{})
	})
}

// awaitMirror waits until the API server has the mirror pod of a static one.
func (r *rollOut) awaitMirror(t *testing.T, name string) {
	t.Helper()
	await(t, func() error {
		_, err := r.c.Admin.CoreV1().Pods(r.ns).Get(t.Context(), r.mirror(name), metav1.GetOptions{})
		return err
	})
}

// writeStatic writes the manifest of a static pod.
func (r *rollOut) writeStatic(t *testing.T, name string) {
	t.Helper()
	must(t, r.a.Write(name+".yaml", inNamespace(r.ns, name, manifest(r.s, name, sleeper))))
}

// mirror is the name of the mirror pod of a static one.
func (r *rollOut) mirror(name string) string { return name + "-" + r.node }

// moment sleeps for a random short time: faults may meet the agent at any point of its work.
func moment(random *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(random.Int64N(int64(most))))
}

// gone waits until neither side has anything left of the pods.
func (r *rollOut) gone(t *testing.T) {
	t.Helper()
	await(t, func() error {
		left, err := podsOf(t, r.c, r.node)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the API server still has %d pods, one of them %+v", len(left), left[0])
		}
		return err
	})
	if r.a.Binary != "" { // a kubelet removes folders and logs when it gets to it
		must(t, r.s.AwaitNoLeftovers())
		return
	}
	cleared(t, r.s, r.a)
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func named(i int) string { return fmt.Sprintf("p%02d", i) }

// The API server may die during a roll-out, and during its deletion. A static pod comes and goes with the others, and its mirror
// pod is deleted.
func TestTheServerIsKilledDuringARollOut(t *testing.T) {
	random := seeded(t)
	c := cluster.Start(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	r := &rollOut{c, s, a, ns, n.Name}
	const pods = 50
	restart := func() {
		moment(random, 500*time.Millisecond)
		must(t, c.KillAPIServer())
		moment(random, 2*time.Second)
		must(t, c.StartAPIServer())
	}
	for i := range pods {
		r.create(t, named(i))
		switch i {
		case pods / 3:
			r.writeStatic(t, "static")
			restart()
		case pods - 1:
			r.removeMirror(t, "static")
			restart()
		}
	}
	noneRestarted(t, s, awaitAgreement(t, c, s, n.Name, pods+1))
	for i := range pods {
		r.remove(t, named(i))
		if i == pods/2 {
			must(t, a.Remove("static.yaml"))
			restart()
		}
	}
	r.gone(t)
}

// faults are the effects of a network and a server in trouble on requests; each is followed by its end.
func faults(p *cluster.Proxy) []func() (end func()) {
	answer := func(code int) func() func() {
		return func() func() {
			p.Answer(code)
			return func() { p.Answer(0) }
		}
	}
	return []func() func(){
		answer(http.StatusTooManyRequests), answer(http.StatusInternalServerError), answer(http.StatusServiceUnavailable),
		answer(http.StatusUnauthorized), answer(http.StatusForbidden), answer(http.StatusGone),
		func() func() { p.Cut(); return p.Cut },
		func() func() { p.Refuse(); return p.Admit },
		func() func() { p.Freeze(); return p.Thaw },
		func() func() {
			p.Delay(time.Second)
			return func() { p.Delay(0) }
		},
		func() func() {
			calls := 0
			p.AnswerWhere(func(*http.Request) int {
				if calls++; calls%3 == 0 {
					return http.StatusInternalServerError
				}
				return 0
			})
			return func() { p.AnswerWhere(nil) }
		},
	}
}

// Every fault between the node and the API server passes, and the result of a roll-out is the same.
func TestFaultsOnTheWayToTheServer(t *testing.T) {
	random := seeded(t)
	c := cluster.Shared(t)
	p := c.Proxy(t)
	n, ns := c.NodeBehind(t, p), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	r := &rollOut{c, s, a, ns, n.Name}
	all := faults(p)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, fault := range all {
		r.create(t, named(2*i))
		if i == len(all)/2 {
			r.awaitMirror(t, "static") // while no fault keeps it from being made
		}
		moment(random, 300*time.Millisecond)
		end := fault()
		r.create(t, named(2*i+1))
		switch i {
		case 0:
			r.writeStatic(t, "static")
		case len(all) / 2:
			r.removeMirror(t, "static")
		}
		moment(random, 2*time.Second)
		end()
	}
	noneRestarted(t, s, awaitAgreement(t, c, s, n.Name, 2*len(all)+1))
	for i, fault := range all {
		r.remove(t, named(2*i))
		end := fault()
		r.remove(t, named(2*i+1))
		if i == len(all)/2 {
			must(t, a.Remove("static.yaml"))
		}
		moment(random, 500*time.Millisecond)
		end()
	}
	r.gone(t)
}

// An agent that is killed at any moment leaves nothing behind that the next one does not finish.
func TestTheAgentOfANodeIsKilled(t *testing.T) {
	random := seeded(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	r := &rollOut{c, s, a, ns, n.Name}
	const pods = 20
	again := func() {
		moment(random, 500*time.Millisecond)
		must(t, a.Kill9())
		must(t, a.Start())
	}
	for i := range pods {
		r.create(t, named(i))
		switch i {
		case 0:
			r.writeStatic(t, "static")
		case 9:
			r.removeMirror(t, "static")
		}
		if i%3 == 0 {
			again()
		}
	}
	noneRestarted(t, s, awaitAgreement(t, c, s, n.Name, pods+1))
	for i := range pods {
		r.remove(t, named(i))
		if i == 9 {
			must(t, a.Remove("static.yaml"))
		}
		if i%3 == 0 {
			again()
		}
	}
	await(t, func() error {
		left, err := podsOf(t, c, n.Name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the API server still has %d pods", len(left))
		}
		return err
	})
	nothing(t, s)
	must(t, s.SweepByForce()) // left in the runtime by a kill in the middle of a CRI call
	r.gone(t)
}
