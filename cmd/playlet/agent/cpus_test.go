package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// The machine of tests has CPUs 0 to 3 on two cores: 0 and 2, 1 and 3. With the static memory manager it is another one.
func init() {
	readNodes = func(node *config.Node) ([]model.Node, error) {
		if node.Kubelet.MemoryManagerPolicy == resources.StaticMemory {
			return fourNodes(), nil
		}
		return []model.Node{{Cores: []model.Core{{Threads: []int{0, 2}}, {Id: 1, Threads: []int{1, 3}}}}}, nil
	}
}

// newExclusiveRig returns a node with the static policy. Its CPU 0 is reserved.
func newExclusiveRig(t *testing.T, flags ...string) *rig {
	return newRig(t, sim.Options{}, append([]string{"--cpu-manager-policy=static", "--reserved-cpus=0",
		"--cpu-manager-reconcile-period=100ms"}, flags...)...)
}

// pinned is the manifest of a pod with a container that has this many CPUs to itself.
func pinned(name string, cpus int) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 0, containers: "+
		"[{name: main, image: forever, resources: {limits: {cpu: %d, memory: 10Mi}}}]}}", name, cpus)
}

// cpusOf returns the CPUs of a pod's running container, or "" if it does not run.
func (r *rig) cpusOf(pod string) string {
	c := r.runtime.Snapshot().Container(pod+"-node", "main")
	if c == nil || !c.Running() {
		return ""
	}
	return c.Resources.GetCpusetCpus()
}

// runsOn waits until the pods' containers run on these CPUs, given as pod and CPUs in turn.
func (r *rig) runsOn(want ...string) {
	r.t.Helper()
	for i := 0; i < len(want); i += 2 {
		r.eventually(fmt.Sprintf("%s runs on %q", want[i], want[i+1]), func() bool { return r.cpusOf(want[i]) == want[i+1] })
	}
}

// waiting returns the reason for which a pod is held.
func (r *rig) waiting(pod string) (out messages.Reason) {
	for _, p := range r.agent.observatory.board.Now().Pods {
		if p.Pod.Name == pod+"-node" && p.Phase == "held" && p.Waiting != nil {
			out = *p.Waiting
		}
	}
	return out
}

func (r *rig) cpuState() string {
	text, err := os.ReadFile(filepath.Join(r.dir, "root", "cpu_manager_state"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A pod has CPUs to itself without a quota, and others do not run on them. It keeps them over a restart of the agent. Another pod
// waits for them until it is gone.
func TestExclusiveCPUs(t *testing.T) {
	t.Parallel()
	r := newExclusiveRig(t)
	r.start(nil)
	r.write("shared.yaml", manifest("shared", "Always", nil, []string{"main forever"}))
	r.runsOn("shared", "0-3")
	r.write("first.yaml", pinned("first", 2))
	r.runsOn("first", "1,3", "shared", "0,2")
	c := r.runtime.Snapshot().Container("first-node", "main")
	if quota := c.Config.GetLinux().GetResources().GetCpuQuota(); quota != -1 {
		t.Errorf("it has the quota %d, want none", quota)
	}
	for name, v := range r.groups.Values() {
		if strings.Contains(name, c.PodUID) && v.CPUQuota != -1 {
			t.Errorf("cgroup %s has the quota %d, want none", name, v.CPUQuota)
		}
	}
	r.write("second.yaml", pinned("second", 2))
	r.eventually("the second waits", func() bool { return r.waiting("second").Code == "UnexpectedAdmissionError" })
	if cause := r.waiting("second").Cause; cause.Code != messages.CauseNoCPUs ||
		cause.Detail != "container main requests 2, and 1 of 3 are free; default/first-node has 2" {
		t.Errorf("it waits because of %+v", cause)
	}
	r.stop()
	r.flags = append(r.flags, "--cpu-manager-policy=none")
	if _, err := newAgent(r.node(), slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "drain this node and remove the file") {
		t.Errorf("the policy is changed: error %v", err)
	}
	r.flags = r.flags[:len(r.flags)-1]
	r.start(nil)
	r.runsOn("first", "1,3", "shared", "0,2")
	if now := r.runtime.Snapshot().Container("first-node", "main"); now.ID != c.ID {
		t.Error("it was restarted with the agent")
	}
	r.untilPrinted([]string{"describe", "first"}, "Own CPUs:", "1,3")
	r.remove("first.yaml")
	r.runsOn("second", "1,3", "shared", "0,2")
	r.remove("second.yaml")
	r.runsOn("shared", "0-3")
	r.eventually("the file is empty", func() bool { return !strings.Contains(r.cpuState(), "entries") })
	checkViolations(t, r)
}

// At whichever message an actor panics, a message is lost, or the agent is killed: no CPU is given to two containers that run,
// and in the end each container has its CPUs and none is lost. The strikes begin with the agent, or when all is assigned.
func TestExclusiveCPUs_SurviveKills(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			w := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
			if !t.Run("undisturbed", func(t *testing.T) { exclusiveDay(t, w, late) }) {
				return
			}
			onDays(t, w.strikes([]supervisors.Kind{"pods", "resources", "container"}, "before", "after", "lost", "all"),
				func(t *testing.T, strikes []strike) { exclusiveDay(t, newKiller(strikes), late) })
		})
	}
}

// exclusiveDay is a day of three pods that have CPUs to themselves one after another, and of one that shares the others.
func exclusiveDay(t *testing.T, chaos supervisors.Interceptor, late bool) {
	r := newExclusiveRig(t)
	if k, kills := chaos.(*killer); kills {
		k.whole = r.fallsWhole()
	}
	falls := r.meanwhile
	r.meanwhile = func() {
		second, third := parseCPUs(t, r.cpusOf("second")), parseCPUs(t, r.cpusOf("third"))
		if both := second.Intersection(third); !both.IsEmpty() {
			t.Errorf("CPUs %s have two owners", both)
		}
		if falls != nil {
			falls()
		}
	}
	gate := &later{Interceptor: chaos}
	gate.open.Store(!late)
	r.write("shared.yaml", manifest("shared", "Always", nil, []string{"main forever"}))
	r.write("first.yaml", pinned("first", 2))
	r.start(gate)
	r.runsOn("first", "1,3", "shared", "0,2")
	gate.open.Store(true)
	r.remove("first.yaml")
	r.runsOn("shared", "0-3", "first", "") // no other pod asks for the CPUs, which would release them
	r.write("second.yaml", pinned("second", 2))
	r.runsOn("second", "1,3", "shared", "0,2")
	r.write("third.yaml", pinned("third", 2))
	r.eventually("the third waits", func() bool { return r.waiting("third").Code == "UnexpectedAdmissionError" })
	r.remove("second.yaml")
	r.runsOn("third", "1,3", "shared", "0,2", "second", "")
	r.eventually("the file has the third alone", func() bool {
		uid := r.runtime.Snapshot().Sandbox("third-node").UID
		return strings.Contains(r.cpuState(), `"defaultCpuSet":"0,2","entries":{"`+uid+`":{"main":"1,3"}}`)
	})
	r.remove("third.yaml")
	r.runsOn("shared", "0-3", "third", "")
	r.eventually("the file is empty", func() bool { return !strings.Contains(r.cpuState(), "entries") })
	r.stop()
	checkViolations(t, r)
}

func parseCPUs(t *testing.T, text string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
