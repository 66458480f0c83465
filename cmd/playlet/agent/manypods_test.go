package agent

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// boundedCollections grow with the number of pods up to a bound of their own, which few pods do not reach.
var boundedCollections = []string{
	"podlog.Names.",            // the last pods, for the log
	"runtime.collector.readAt", // the pods since the last message of the pods actor, which comes every minute
	"supervisors.Recorder.",    // the flight recorder, which has bounded memory
	"supervisors.entryLog.",    // "
	"eventlog.",                // the last Events
	// The pods at the last update of the node's cgroups: those of one wave, or of two.
	"reconcile.object[[]*k8s.io/api/core/v1.Pod,struct {}].desired",
}

// recentCollections hold the pods whose manifests were removed less than recently ago.
var recentCollections = []string{"base.Departures.", "messages.SourcePodsWanted.Gone", "file.readResult.gone", "file.lastGood.Gone"}

// recently is the minute for which a source keeps departed pods, and the time until it reads its folder again.
const recently = 2 * time.Minute

// TestManyShortPods_LeaveNothingBehind runs pods that end at once, and more of them, and compares all maps and slices of the
// agent. SHORT_PODS is the number of pods of the second agent.
func TestManyShortPods_LeaveNothingBehind(t *testing.T) {
	more := envNumber(t, "SHORT_PODS", 400)
	few := min(max(more/4, podWave), 1000)
	before, _ := sizesAfter(t, few)
	after, recent := sizesAfter(t, more)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		grown := after[name] - before[name]
		begins := func(s string) bool { return strings.HasPrefix(name, s) }
		bounded := slices.ContainsFunc(boundedCollections, begins) ||
			after[name] <= recent && slices.ContainsFunc(recentCollections, begins)
		if grown > max((more-few)/4, podWave) && !bounded {
			t.Errorf("%s has %d elements after %d pods and %d after %d", name, before[name], few, after[name], more)
		}
	}
	largest := slices.SortedFunc(maps.Keys(after), func(a, b string) int { return after[b] - after[a] })
	for _, name := range largest[:min(15, len(largest))] {
		t.Logf("%s: %d elements after %d pods, %d after %d", name, before[name], few, after[name], more)
	}
}

// podWave is the number of pods that are there at once.
const podWave = 100

// sizesAfter runs so many pods, a hundred at a time, and returns the numbers of elements in the agent's maps and slices. recent
// is the number of manifests that were removed recently.
func sizesAfter(t *testing.T, n int) (sizes map[string]int, recent int) {
	r := newClusterRig(t, sim.Options{Script: sim.Script{Default: sim.Sequence{sim.ExitAfter(0, 0)}}}, "--max-pods=250",
		"--registry-qps=0")
	r.measured = true
	r.api.PrependReactor("create", "events", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, a.(ktesting.CreateAction).GetObject(), nil // the server of the simulation keeps none
	})
	services := r.startRecorded()
	r.eventually("pods are watched", func() bool {
		return slices.ContainsFunc(r.api.Actions(), func(a ktesting.Action) bool {
			return a.GetVerb() == "watch" && a.GetResource().Resource == "pods"
		})
	})
	r.progress = func() string { // a machine that is busy for hours is slow, and not stuck
		text := ""
		for _, p := range r.agent.observatory.board.Now().Pods {
			text += string(p.Pod.UID) + p.Phase
		}
		return fmt.Sprint(text, len(r.runtime.Snapshot().Sandboxes))
	}
	began := time.Now()
	var removals []time.Time
	for first := 0; first < n; first += podWave {
		if first%max(n/10/podWave*podWave, podWave) == 0 {
			logHeap(t, first)
		}
		names := make([]string, 0, podWave)
		for i := first; i < min(first+podWave, n); i++ {
			name := fmt.Sprintf("short%d", i)
			names = append(names, name)
			if text := manifest(name, "Never", nil, []string{"main short"}); i%2 == 0 {
				r.write(name+".yaml", text)
			} else {
				r.binds(text)
			}
		}
		r.eventually("all pods have ended", func() bool {
			over := 0
			for _, p := range r.agent.observatory.board.Now().Pods {
				if p.Phase == "finished" {
					over++
				}
			}
			return over == len(names)
		})
		for i, name := range names {
			if i%2 == 0 {
				r.remove(name + ".yaml")
				removals = append(removals, time.Now())
			} else {
				r.forgets(name)
			}
		}
		r.eventually("nothing is left in the runtime", func() bool { return len(r.runtime.Snapshot().Sandboxes) == 0 })
		remaining := "not read"
		r.failing = func() string { return "remaining pods: " + remaining }
		r.eventually("all pods are gone", func() bool {
			list, err := r.api.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
			board := r.agent.observatory.board.Now().Pods
			if remaining = fmt.Sprint(err); err == nil {
				remaining = fmt.Sprintf("%d at the API server, %d on the board", len(list.Items), len(board))
				for i := range list.Items {
					remaining += fmt.Sprintf(", API server %s (deletion %v)", list.Items[i].Name, list.Items[i].DeletionTimestamp)
				}
				for _, b := range board {
					remaining += fmt.Sprintf(", board %s %s", b.Pod.Name, b.Phase)
				}
			}
			return err == nil && len(list.Items) == 0 && len(board) == 0
		})
		r.forgetWave()
	}
	t.Logf("%d pods took %s", n, time.Since(began).Round(time.Millisecond))
	logHeap(t, n)
	a := r.agent
	r.stop()
	removals = slices.DeleteFunc(removals, func(at time.Time) bool { return time.Since(at) > recently })
	return collections(a, *services), len(removals)
}

// forgetWave drops the records of the simulated runtime and API server, and the log, which are not the agent's.
func (r *clusterRig) forgetWave() {
	r.api.ClearActions()
	r.runtime.Forget()
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.b.Reset()
}

// logHeap logs the live heap of agent, simulated runtime and simulated API server, and the goroutines, after so many pods.
func logHeap(t *testing.T, pods int) {
	goruntime.GC()
	goruntime.GC() // the first one only queues finalizers and moves pools to their victims
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	t.Logf("after %6d pods: %5.1f MiB of live heap, %d objects, %d goroutines", pods, float64(m.HeapAlloc)/(1<<20), m.HeapObjects,
		goruntime.NumGoroutine())
}

// startRecorded starts the agent, and returns the actors of its services as they are spawned.
func (r *rig) startRecorded() *[]supervisors.Actor {
	r.t.Helper()
	a, services := r.prepare(), &[]supervisors.Actor{}
	if err := a.listeners.Open(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	a.cluster.watch(a.node, a.host.Ops, a.log)
	var mu sync.Mutex
	constructors := a.wire()
	for kind, construct := range constructors {
		if construct == nil || slices.Contains([]supervisors.Kind{"pod", "container", "ender"}, kind) {
			continue // not configured, or one for each pod: the test would keep them
		}
		constructors[kind] = func(name string) supervisors.Actor {
			one := construct(name)
			mu.Lock()
			defer mu.Unlock()
			*services = append(*services, one)
			return one
		}
	}
	system, err := supervisors.Start(supervisors.Options{
		Constructors: constructors, Log: a.log, Fatal: func(err error) { a.failed <- err },
		WorkContext: a.observatory.tracing.WorkContext(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	a.system = system
	a.observatory.attach(system)
	a.listeners.Attach(system)
	a.host.Devices.Notify(func(uid string) { system.Tell(messages.PodAddress(uid), messages.DevicesChanged{UID: uid}) },
		func() {})
	r.agent = a
	return services
}

// collections returns the numbers of elements of all maps and slices of the project's own types that are reachable, by the types
// and fields that hold them.
func collections(roots ...any) map[string]int {
	c := census{sizes: map[string]int{}, seen: map[visit]bool{}}
	for _, root := range roots {
		c.walk(reflect.ValueOf(root), reflect.TypeOf(root).String())
	}
	return c.sizes
}

type visit struct {
	at   uintptr
	kind reflect.Type
}

type census struct {
	sizes map[string]int
	seen  map[visit]bool
}

// again reports whether the value at a pointer was visited.
func (c *census) again(v reflect.Value) bool {
	key := visit{v.Pointer(), v.Type()}
	was := c.seen[key]
	c.seen[key] = true
	return was
}

func (c *census) walk(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			c.walk(v.Elem(), name)
		}
	case reflect.Pointer:
		if !v.IsNil() && !c.again(v) {
			c.walk(v.Elem(), name)
		}
	case reflect.Struct:
		of := v.Type()
		if path := of.PkgPath(); path != "" && !strings.HasPrefix(path, "github.com/playlet-dev/playlet/") {
			return // goroutines of libraries may still use it
		}
		for i := range of.NumField() {
			c.walk(v.Field(i), of.String()+"."+of.Field(i).Name)
		}
	case reflect.Map:
		if v.IsNil() || c.again(v) {
			return
		}
		c.sizes[name] += v.Len()
		for each := v.MapRange(); each.Next(); {
			c.walk(each.Value(), name+"[]")
		}
	case reflect.Slice:
		if v.IsNil() || c.again(v) {
			return
		}
		c.sizes[name] += v.Len()
		for i := range v.Len() {
			c.walk(v.Index(i), name+"[]")
		}
	case reflect.Array:
		for i := range v.Len() {
			c.walk(v.Index(i), name+"[]")
		}
	default: // it holds nothing, or is a channel or function, into which there is no looking
	}
}
