package resources

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/cpus"
	"github.com/playlet-dev/playlet/actors/internal/numamemory"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// Pinner keeps the running containers on their CPUs, while the shared pool changes, and on their NUMA nodes.
type Pinner struct {
	CPUs    *cpus.Manager
	Memory  *numamemory.Manager // nil: containers use all NUMA nodes
	Board   *board.Board
	Runtime Updater
	Period  time.Duration // [cpuManagerReconcilePeriod]
}

// Updater is the part of the runtime that changes the CPUs and NUMA nodes of containers.
type Updater interface {
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
}

// updates is how many containers are changed at a time.
const updates = 4

// cpusets are the CPUs and NUMA nodes of running containers, by the pod's UID and the container's ID. A container is created with
// them. It gets them once more when it is first seen here, because the pool may have changed before its start.
type cpusets struct {
	Pinner
	sets    *reconcile.Reconciler[cpuset, struct{}]
	refused map[string]string // running pods that stay on the shared CPUs: the logged reason, by UID
}

// cpuset is where a container runs: CPUs and NUMA nodes, as "0-3,7"; empty: no change.
type cpuset struct{ cpus, mems string }

type cpusetsDue struct{}

// adoptionResult reports that running pods were given CPUs, as far as there are any.
type adoptionResult struct {
	refused map[string]string // the reason, by the pod's UID
}

// newCPUSets returns nil if no container has CPUs to itself or memory from chosen NUMA nodes.
func newCPUSets(p Pinner, ops reconcile.Operations) *cpusets {
	if p.CPUs == nil || !p.CPUs.Static() && !p.Memory.Static() {
		return nil
	}
	return &cpusets{Pinner: p, sets: reconcile.New(reconcile.Options[cpuset, struct{}]{
		Name: "cpuset", Driver: cpusetDriver{p.Runtime}, Report: func(supervisors.Context, reconcile.Report[cpuset, struct{}]) {},
		Pod:        func(key string) string { uid, _, _ := strings.Cut(key, "/"); return uid },
		Operations: ops, Prefix: "cpusets/", OperationTimeout: operationTimeout,
		Rules: reconcile.Rules[cpuset, struct{}]{Same: func(a, b cpuset) bool { return a == b }, Retry: retry, Timeout: timeout,
			RemoveTimeout: timeout, Places: []int{updates}},
	})}
}

// receive handles the messages of the cpusets. After a change of the assignments it is followed by sync.
func (c *cpusets) receive(ctx supervisors.Context, msg any) bool {
	if c == nil {
		return false
	}
	switch m := msg.(type) {
	case cpusetsDue:
		c.start(ctx)
	case adoptionResult:
		for uid, reason := range m.refused {
			if c.refused[uid] != reason {
				ctx.Log().Warn("a running pod that requests exclusive CPUs or memory has none", "podUID", uid,
					"reason", reason)
			}
		}
		c.refused = m.refused
		c.sync(ctx)
	default:
		return c.sets.Receive(ctx, msg)
	}
	return true
}

// adopt gives CPUs and memory to running pods that ask for some and have none: the checkpoint was removed, or the agent before
// had no such policy. Their containers move there, and keep their CPU quota until they are created again. The policy of the
// topology manager does not apply to running pods. The next ResourcesHeld repeats it.
func (c *cpusets) adopt(ctx supervisors.Context, holding map[string]string) {
	if c == nil {
		return
	}
	var pods []*v1.Pod
	for _, p := range c.Board.Now().Pods {
		if _, holds := holding[string(p.Pod.UID)]; holds && len(running(p.Status)) > 0 &&
			slices.ContainsFunc(c.pinned(), func(l lackReporter) bool { return l.Lacks(p.Pod) }) {
			pods = append(pods, p.Pod)
		}
	}
	if len(pods) == 0 {
		return
	}
	ctx.Do(supervisors.Work{Name: "allocate CPUs of running pods", Timeout: allocateTimeout, Run: func(ctx context.Context) any {
		done := adoptionResult{map[string]string{}}
		for _, p := range pods {
			for _, from := range c.pinned() {
				if !from.Lacks(p) {
					continue
				}
				if err := (allocation{providers: []Provider{from}}).try(ctx, p); err != nil {
					from.Release(string(p.UID))
					done.refused[string(p.UID)] = err.Error()
				}
			}
		}
		return done
	}})
}

// lackReporter is a provider that can allocate resources to running containers.
type lackReporter interface {
	Provider
	// Lacks reports whether the pod asks for some and has none. It does not block.
	Lacks(pod *v1.Pod) bool
}

func (c *cpusets) pinned() []lackReporter {
	if c.Memory == nil {
		return []lackReporter{c.CPUs}
	}
	return []lackReporter{c.CPUs, c.Memory}
}

// start gives all running containers their CPUs, now and once each period.
func (c *cpusets) start(ctx supervisors.Context) {
	if c != nil {
		c.sync(ctx)
		ctx.After(c.Period, cpusetsDue{})
	}
}

// sync gives the running containers their CPUs, if these have changed.
func (c *cpusets) sync(ctx supervisors.Context) {
	if c == nil {
		return
	}
	wanted := map[string]cpuset{}
	for _, p := range c.Board.Now().Pods {
		for id, name := range running(p.Status) {
			uid := string(p.Pod.UID)
			if set := (cpuset{c.CPUs.Pin(uid, name).CPUs, c.Memory.Nodes(uid, name)}); set != (cpuset{}) {
				wanted[uid+"/"+id] = set
			}
		}
	}
	var gone []string
	c.sets.Each(func(r reconcile.Report[cpuset, struct{}]) {
		switch now, runs := wanted[r.Key]; {
		case !runs:
			gone = append(gone, r.Key)
		case now == r.Desired:
			delete(wanted, r.Key)
		}
	})
	for _, key := range gone {
		c.sets.Forget(ctx, key)
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		c.sets.Ensure(ctx, key, wanted[key])
	}
}

// running returns the names of the running containers by ID.
func running(s *v1.PodStatus) map[string]string {
	out := map[string]string{}
	if s == nil {
		return out
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if _, id, ok := strings.Cut(list[i].ContainerID, "://"); ok && list[i].State.Running != nil {
				out[id] = list[i].Name
			}
		}
	}
	return out
}

// cpusetDriver changes the CPUs and NUMA nodes of a running container.
type cpusetDriver struct{ runtime Updater }

func (d cpusetDriver) Ensure(ctx context.Context, op reconcile.Operation[cpuset, struct{}]) (struct{}, error) {
	_, id, _ := strings.Cut(op.Key, "/")
	err := d.runtime.UpdateContainerResources(ctx, id,
		&runtimeapi.LinuxContainerResources{CpusetCpus: op.Desired.cpus, CpusetMems: op.Desired.mems})
	if cri.IsNotFound(err) {
		err = nil
	}
	return struct{}{}, err
}

func (cpusetDriver) Remove(context.Context, string) error { return nil }

func (cpusetDriver) Inventory(context.Context) ([]string, error) { return nil, nil }
