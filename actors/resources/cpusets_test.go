package resources

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/cpus"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// updater records the updates of containers.
type updater struct {
	got []string
	err error
}

func (u *updater) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	u.got = append(u.got, id+"="+r.GetCpusetCpus())
	return u.err
}

// guaranteed returns a pod with a container that requests this many CPUs.
func guaranteed(uid, cpu string) *v1.Pod {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Mi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}}}
	pod.UID = types.UID(uid)
	return pod
}

// sharing returns a pod of the board with a container that runs on the shared pool, or is over.
func sharing(uid, id string, runs bool) board.Pod {
	s := v1.ContainerStatus{Name: "c", ContainerID: "sim://" + id}
	if runs {
		s.State.Running = &v1.ContainerStateRunning{}
	}
	return board.Pod{Pod: guaranteed(uid, "500m"), Status: &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{s}}}
}

// pinning returns the actor on a machine with three CPUs, and a check of the updates since the last one.
func pinning(t *testing.T) (*supervisortest.Kit, *cpus.Manager, *board.Board, *updater, func(about string, want ...string)) {
	topology := cpus.Topology{0: {}, 1: {Core: 1}, 2: {Core: 2}}
	m, err := cpus.Open(cpus.Config{RootDir: t.TempDir(), Policy: cpus.PolicyStatic, Count: 1, Log: slog.New(slog.DiscardHandler),
		Topology: func() (cpus.Topology, error) { return topology, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	b, u := board.New(), &updater{}
	k := supervisortest.New(t, messages.Resources, New(Options{Providers: []Provider{m}, Operations: cri.NewOperations(),
		Pinning: Pinner{CPUs: m, Board: b, Runtime: u, Period: 10 * time.Second}})("resources"))
	return k, m, b, u, func(about string, want ...string) {
		t.Helper()
		k.RunWork()
		slices.Sort(u.got)
		if !slices.Equal(u.got, want) {
			t.Errorf("%s: got updates %v, want %v", about, u.got, want)
		}
		u.got = nil
	}
}

// A running pod that asks for CPUs to itself and has none, e.g. after the removal of the checkpoint, gets them once the holders
// are known. A pod that holds nothing any more, and one for which there are not enough CPUs, get none; the latter tries again.
func TestCPUSets_RunningPodsWithoutTheirs(t *testing.T) {
	k, m, b, _, expect := pinning(t)
	asks := func(uid, id, cpu string) board.Pod {
		p := sharing(uid, id, true)
		p.Pod = guaranteed(uid, cpu)
		return p
	}
	b.Publish(board.Snapshot{Pods: []board.Pod{asks("a", "a1", "1"), asks("b", "b1", "2"), asks("ends", "e1", "1"),
		sharing("c", "c1", true)}})
	k.Advance(10 * time.Second)
	expect("the holders are not known", "a1=0-2", "b1=0-2", "c1=0-2", "e1=0-2")
	holding := map[string]string{"a": "ns/a", "b": "ns/b", "c": "ns/c"}
	k.Send(messages.Pods, messages.ResourcesHeld{Holding: holding})
	expect("a has CPU 1, and 2 are too many for b", "a1=1", "b1=0,2", "c1=0,2", "e1=0,2")
	if m.Lacks(guaranteed("a", "1")) || !m.Lacks(guaranteed("b", "2")) || !m.Lacks(guaranteed("ends", "1")) {
		t.Error("got CPUs for the wrong pods, want them for a alone")
	}
	b.Publish(board.Snapshot{Pods: []board.Pod{asks("b", "b1", "2"), sharing("c", "c1", true)}})
	delete(holding, "a")
	k.Send(messages.Pods, messages.ResourcesHeld{Holding: holding})
	expect("a is gone, and b has CPUs 1 and 2", "b1=0-2", "b1=1-2", "c1=0", "c1=0-2")
}

// Running containers follow the shared pool: when it shrinks and grows, and once each period. A failed update is retried.
func TestCPUSets_FollowTheSharedPool(t *testing.T) {
	k, _, b, u, expect := pinning(t)
	b.Publish(board.Snapshot{Pods: []board.Pod{sharing("a", "a1", true), sharing("b", "b1", false), {Pod: guaranteed("new", "1")}}})
	k.Advance(10 * time.Second)
	expect("first seen", "a1=0-2")
	k.Advance(10 * time.Second)
	expect("nothing has changed")
	b.Publish(board.Snapshot{Pods: []board.Pod{sharing("a", "a1", true), sharing("b", "b2", true)}})
	k.Send(messages.Pods, messages.AllocateResources{UID: "u", Pod: guaranteed("x", "1"), Holding: map[string]string{"u": "ns/x"}, Heard: true})
	expect("a pod gets CPU 1", "a1=0,2", "b2=0,2", "b2=0-2")
	u.err = errors.New("busy")
	k.Send(messages.Pods, messages.ResourcesHeld{})
	expect("it is gone, and the runtime fails", "a1=0-2", "b2=0-2")
	u.err = nil
	k.Advance(time.Second)
	expect("the runtime works again", "a1=0-2", "b2=0-2")
	b.Publish(board.Snapshot{Pods: []board.Pod{sharing("a", "a1", true)}})
	k.Advance(10 * time.Second)
	expect("a container is gone")
}
