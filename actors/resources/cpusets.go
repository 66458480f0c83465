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
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// Pinning keeps the running containers on their CPUs, while the shared pool changes.
type Pinning struct {
	CPUs    *cpus.Manager
	Board   *board.Board
	Runtime Updater
	Period  time.Duration // [cpuManagerReconcilePeriod]
}

// Updater is the part of the runtime that changes the CPUs of containers.
type Updater interface {
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
}

// updates is how many containers are changed at a time.
const updates = 4

// cpusets are the CPUs of running containers, by the pod's UID and the container's ID. A container is created with its CPUs. It
// gets them once more when it is first seen here, because the pool may have changed before its start.
type cpusets struct {
	Pinning
	sets    *reconcile.Reconciler[string, struct{}]
	refused map[string]string // running pods that stay on the shared CPUs: the logged reason, by UID
}

type cpusetsDue struct{}

// adopted reports that running pods were given CPUs, as far as there are any.
type adopted struct {
	refused map[string]string // the reason, by the pod's UID
}

// newCPUSets returns nil if no container can have CPUs to itself.
func newCPUSets(p Pinning, ops reconcile.Operations) *cpusets {
	if p.CPUs == nil || !p.CPUs.Static() {
		return nil
	}
	return &cpusets{Pinning: p, sets: reconcile.New(reconcile.Options[string, struct{}]{
		Name: "cpuset", Driver: cpusetDriver{p.Runtime}, Report: func(supervisors.Context, reconcile.Report[string, struct{}]) {},
		Pod:        func(key string) string { uid, _, _ := strings.Cut(key, "/"); return uid },
		Operations: ops, Prefix: "cpusets/", OperationTimeout: operationTimeout,
		Rules: reconcile.Rules[string, struct{}]{Same: func(a, b string) bool { return a == b }, Retry: retry, Timeout: timeout,
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
	case adopted:
		for uid, reason := range m.refused {
			if c.refused[uid] != reason {
				ctx.Log().Warn("a running pod that asks for CPUs to itself stays on the shared CPUs", "podUID", uid,
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

// adopt gives CPUs to running pods that ask for some and have none: the checkpoint was removed, or the agent before had no such
// policy. Their containers move to these CPUs, and keep their CPU quota until they are created again. The next ResourcesHeld
// repeats it.
func (c *cpusets) adopt(ctx supervisors.Context, holding map[string]string) {
	if c == nil {
		return
	}
	var pods []*v1.Pod
	for _, p := range c.Board.Now().Pods {
		if _, holds := holding[string(p.Pod.UID)]; holds && len(running(p.Status)) > 0 && c.CPUs.Lacks(p.Pod) {
			pods = append(pods, p.Pod)
		}
	}
	if len(pods) == 0 {
		return
	}
	ctx.Do(supervisors.Work{Name: "allocate CPUs of running pods", Timeout: allocateTimeout, Run: func(ctx context.Context) any {
		done := adopted{map[string]string{}}
		for _, p := range pods {
			if err := c.CPUs.Allocate(ctx, p); err != nil {
				done.refused[string(p.UID)] = err.Error()
			}
		}
		return done
	}})
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
	wanted := map[string]string{}
	for _, p := range c.Board.Now().Pods {
		for id, name := range running(p.Status) {
			uid := string(p.Pod.UID)
			wanted[uid+"/"+id] = c.CPUs.Pin(uid, name).CPUs
		}
	}
	var gone []string
	c.sets.Each(func(r reconcile.Report[string, struct{}]) {
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

// cpusetDriver changes the CPUs of a running container.
type cpusetDriver struct{ runtime Updater }

func (d cpusetDriver) Ensure(ctx context.Context, op reconcile.Operation[string, struct{}]) (struct{}, error) {
	_, id, _ := strings.Cut(op.Key, "/")
	err := d.runtime.UpdateContainerResources(ctx, id, &runtimeapi.LinuxContainerResources{CpusetCpus: op.Desired})
	if cri.IsNotFound(err) {
		err = nil
	}
	return struct{}{}, err
}

func (cpusetDriver) Remove(context.Context, string) error { return nil }

func (cpusetDriver) Inventory(context.Context) ([]string, error) { return nil, nil }
