package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const mi = 1 << 20

// fourNodes is a machine of four NUMA nodes with two CPUs and 300 MiB of memory each: node 0 has CPUs 0 and 1.
func fourNodes() (out []model.Node) {
	for n := range 4 {
		out = append(out, model.Node{Id: n, Memory: 300 * mi, Distances: []uint64{10, 20, 20, 20},
			Cores: []model.Core{{Id: 0, SocketID: n, Threads: []int{2 * n}}, {Id: 1, SocketID: n, Threads: []int{2*n + 1}}}})
	}
	return out
}

// newTopologyRig returns a node with static policies of CPUs and memory. CPU 0 and 50 MiB of NUMA node 0 are reserved.
func newTopologyRig(t *testing.T, policy string, flags ...string) *rig {
	return newExclusiveRig(t, append([]string{"--memory-manager-policy=Static", "--reserved-memory=0:memory=50Mi",
		"--eviction-hard=memory.available<50Mi", "--topology-manager-policy=" + policy}, flags...)...)
}

// placed is the manifest of a Guaranteed pod.
func placed(name string, cpus, memory string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 0, containers: "+
		"[{name: main, image: forever, resources: {limits: {cpu: %s, memory: %s}}}]}}", name, cpus, memory)
}

// places waits until the pods' containers run on these CPUs and NUMA nodes, given as pod and "cpus mems" in turn.
func (r *rig) places(want ...string) {
	r.t.Helper()
	for i := 0; i < len(want); i += 2 {
		r.eventually(fmt.Sprintf("%s runs on %q", want[i], want[i+1]), func() bool { return r.placeOf(want[i]) == want[i+1] })
	}
}

func (r *rig) placeOf(pod string) string {
	c := r.runtime.Snapshot().Container(pod+"-node", "main")
	if c == nil || !c.Running() {
		return ""
	}
	return c.Resources.GetCpusetCpus() + " " + c.Resources.GetCpusetMems()
}

// memoryState returns the memory that containers have of each NUMA node by the checkpoint.
func (r *rig) memoryState() (reserved [4]uint64) {
	text, err := os.ReadFile(filepath.Join(r.dir, "root", "memory_manager_state"))
	if err != nil {
		r.t.Fatal(err)
	}
	var data struct {
		MachineState map[int]struct {
			MemoryMap map[string]struct{ Reserved uint64 }
		}
	}
	if err := json.Unmarshal(text, &data); err != nil {
		r.t.Fatal(err)
	}
	for n := range reserved {
		reserved[n] = data.MachineState[n].MemoryMap["memory"].Reserved / mi
	}
	return reserved
}

// CPUs and memory of a pod come from one NUMA node. A pod for which no node has both waits, and the reason names the resource and
// the nodes. Everything survives a restart of the agent, and is free after the end of the pod.
func TestTopology_SingleNode(t *testing.T) {
	t.Parallel()
	r := newTopologyRig(t, "single-numa-node")
	r.start(nil)
	r.write("shared.yaml", manifest("shared", "Always", nil, []string{"main forever"}))
	r.places("shared", "0-7 ")
	for i, name := range []string{"a", "b", "c"} {
		r.write(name+".yaml", placed(name, "2", "200Mi"))
		r.places(name, fmt.Sprintf("%d-%d %d", 2*i+2, 2*i+3, i+1))
	}
	r.places("shared", "0-1 ")
	r.write("d.yaml", placed("d", "2", "200Mi"))
	r.eventually("d waits", func() bool { return r.waiting("d").Code == "TopologyAffinityError" })
	if w := r.waiting("d"); w.Message != "Resources cannot be allocated with Topology locality" || w.Cause.Name != "cpu" ||
		w.Cause.Detail != "container main: policy single-numa-node: cpu fits on no preferred set of the NUMA nodes 0, 1, 2 and 3" {
		t.Errorf("it waits because of %+v", w)
	}
	r.untilPrinted([]string{"explain", "d"}, "cpu fits on no preferred set of the NUMA nodes 0, 1, 2 and 3")
	// One CPU is free on node 0, and enough memory on the nodes without a CPU only.
	r.write("e.yaml", placed("e", "1", "260Mi"))
	r.eventually("e waits", func() bool { return r.waiting("e").Code == "TopologyAffinityError" })
	r.write("f.yaml", placed("f", "1", "250Mi"))
	r.places("f", "1 0")
	if got, want := r.memoryState(), [4]uint64{250, 200, 200, 200}; got != want {
		t.Errorf("the checkpoint has %v, want %v", got, want)
	}
	r.stop()
	r.start(nil)
	r.places("a", "2-3 1", "b", "4-5 2", "c", "6-7 3", "f", "1 0", "shared", "0 ")
	r.remove("e.yaml")
	r.eventually("e is gone", func() bool { return r.waiting("e").Code == "" })
	r.remove("b.yaml")
	r.places("d", "4-5 2", "b", "")
	for _, name := range []string{"a", "c", "d", "f"} {
		r.remove(name + ".yaml")
	}
	r.places("shared", "0-7 ")
	r.eventually("all memory is free", func() bool { return r.memoryState() == [4]uint64{} })
	checkViolations(t, r)
}

// With the scope pod the containers of a pod share one NUMA node; with the scope container each has its own.
func TestTopology_Scopes(t *testing.T) {
	t.Parallel()
	two := strings.Replace(placed("two", "1", "200Mi"), "containers: [", "containers: [{name: side, image: forever, resources: "+
		"{limits: {cpu: 1, memory: 200Mi}}}, ", 1)
	for scope, c := range map[string]struct {
		manifest string
		refused  bool
	}{
		"container": {two, false},
		"pod":       {two, true},
	} {
		r := newTopologyRig(t, "restricted", "--topology-manager-scope="+scope)
		r.start(nil)
		r.write("two.yaml", c.manifest)
		if c.refused { // 400 MiB need two nodes, two CPUs one
			r.eventually(scope+": it waits", func() bool { return r.waiting("two").Code == "TopologyAffinityError" })
			if detail := r.waiting("two").Cause.Detail; !strings.Contains(detail, "cpu fits on 1 or 2 or 3; memory fits on 0 and 1 or 0 and 2") {
				t.Errorf("%s: got the cause %s", scope, detail)
			}
		} else {
			r.places("two", "2 1")
		}
		r.stop()
		checkViolations(t, r)
	}
}

// At whichever message an actor panics, a message is lost, or the agent is killed: no CPU and no memory is given twice, each pod
// has both from one NUMA node, and in the end none is lost.
func TestTopology_SurvivesKills(t *testing.T) {
	t.Parallel()
	w := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
	if !t.Run("undisturbed", func(t *testing.T) { topologyDay(t, w) }) {
		return
	}
	onDays(t, w.strikes([]supervisors.Kind{"pods", "resources"}, "before", "after", "lost", "all"),
		func(t *testing.T, strikes []strike) { topologyDay(t, newKiller(strikes)) })
}

// topologyDay is a day of pods that fill NUMA nodes, and of one that waits for a node.
func topologyDay(t *testing.T, chaos supervisors.Interceptor) {
	r := newTopologyRig(t, "single-numa-node")
	if k, kills := chaos.(*killer); kills {
		k.whole = r.fallsWhole()
	}
	falls := r.meanwhile
	r.meanwhile = func() {
		seen := map[string]string{}
		for _, name := range []string{"a", "b", "c", "d"} {
			place := r.placeOf(name)
			if other := seen[place]; other != "" {
				t.Errorf("%s and %s have the place %s", name, other, place)
			}
			if place != "" {
				seen[place] = name
			}
			if place != "" && place != "2-3 1" && place != "4-5 2" && place != "6-7 3" {
				t.Errorf("%s has the place %q", name, place)
			}
		}
		if falls != nil {
			falls()
		}
	}
	r.write("a.yaml", placed("a", "2", "200Mi"))
	r.start(chaos)
	r.places("a", "2-3 1")
	r.write("b.yaml", placed("b", "2", "200Mi"))
	r.places("b", "4-5 2")
	r.write("c.yaml", placed("c", "2", "200Mi"))
	r.places("c", "6-7 3")
	r.write("d.yaml", placed("d", "2", "200Mi"))
	r.eventually("d waits", func() bool { return r.waiting("d").Cause.Code == messages.CauseNoAffinity })
	r.remove("b.yaml")
	r.places("d", "4-5 2", "b", "")
	r.eventually("the file has three pods", func() bool { return r.memoryState() == [4]uint64{0, 200, 200, 200} })
	for _, name := range []string{"a", "c", "d"} {
		r.remove(name + ".yaml")
	}
	r.eventually("all memory is free", func() bool { return r.memoryState() == [4]uint64{} })
	r.eventually("all CPUs are free", func() bool { return !strings.Contains(r.cpuState(), "entries") })
	r.stop()
	checkViolations(t, r)
}
