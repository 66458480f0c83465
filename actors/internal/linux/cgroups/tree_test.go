package cgroups_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups/cgroupstest"
)

func newTree(systemd bool) (*cgroupstest.Memory, cgroups.Tree) {
	m := cgroupstest.New()
	return m, cgroups.Tree{
		Groups: m, Systemd: func() bool { return systemd }, Pause: time.Millisecond,
		Capacity: func() (cgroups.Capacity, error) { return cgroups.Capacity{MilliCPU: 2000, Memory: 1 << 30}, nil },
	}
}

func paths(m *cgroupstest.Memory) []string {
	var out []string
	for at := range m.Values() {
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

func TestTheKubeletsTree(t *testing.T) {
	pod := &v1.Pod{}
	pod.UID = types.UID("a-b")
	for systemd, want := range map[bool]string{
		false: "/kubepods /kubepods/besteffort /kubepods/besteffort/poda-b /kubepods/burstable",
		true: "/kubepods.slice /kubepods.slice/kubepods-besteffort.slice " +
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice /kubepods.slice/kubepods-burstable.slice",
	} {
		m, tree := newTree(systemd)
		if err := tree.ApplyNode(nil); err != nil {
			t.Fatal(err)
		}
		parent, err := tree.EnsurePod(pod)
		if got := strings.Join(paths(m), " "); err != nil || got != want || !slices.Contains(paths(m), parent) {
			t.Errorf("there are %s, %v, and the pod's is %s", got, err, parent)
		}
		uids, err := tree.Pods()
		if err != nil || len(uids) != 1 || cgroups.Key(uids[0]) != cgroups.Key("a-b") {
			t.Errorf("pods %v, %v", uids, err)
		}
		if err := tree.RemovePod(t.Context(), uids[0]); err != nil || len(paths(m)) != 3 {
			t.Errorf("after removing the pod's: %v, %v", paths(m), err)
		}
	}
}

// A tree without groups of pods is idle, whichever driver made the classes.
func TestTree_Idle(t *testing.T) {
	pod := &v1.Pod{}
	pod.UID = types.UID("a-b")
	for _, systemd := range []bool{false, true} {
		_, tree := newTree(systemd)
		idle := tree
		idle.Systemd = nil // it is not known before the runtime answers
		if !idle.Idle() {
			t.Errorf("systemd %t: not idle after a boot", systemd)
		}
		if err := tree.ApplyNode(nil); err != nil || !idle.Idle() {
			t.Errorf("systemd %t: %v; not idle without pods", systemd, err)
		}
		if _, err := tree.EnsurePod(pod); err != nil || idle.Idle() {
			t.Errorf("systemd %t: %v; idle with a pod", systemd, err)
		}
	}
}

// Processes in a pod's group are killed before the group is removed. A group with remaining processes is kept and reported.
func TestProcessesAreEndedBeforeTheirGroupGoes(t *testing.T) {
	m, tree := newTree(false)
	m.Put("/kubepods/podx", 4711, 4712)
	if err := tree.RemovePod(t.Context(), "x"); err != nil || len(paths(m)) > 0 {
		t.Errorf("left %v, %v", paths(m), err)
	}
	m.Put("/kubepods/podx", 4711)
	m.Deafen()
	if err := tree.RemovePod(t.Context(), "x"); err == nil || len(paths(m)) != 1 {
		t.Errorf("left %v, %v", paths(m), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tree.RemovePod(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}

// A mistyped cgroupRoot is not created.
func TestTheRootHasToBeThere(t *testing.T) {
	m, tree := newTree(false)
	tree.Root = cgroups.ParseName("/pods/here")
	if err := tree.ApplyNode(nil); err == nil || !strings.Contains(err.Error(), "/pods/here does not exist") ||
		len(paths(m)) > 0 {
		t.Errorf("%v, %v", err, paths(m))
	}
	if err := tree.CheckGroups(); err == nil || !strings.Contains(err.Error(), "/pods/here does not exist") {
		t.Errorf("before the start: %v", err)
	}
	m.Put("/pods.slice/pods-here.slice")
	if err := tree.CheckGroups(); err != nil {
		t.Errorf("as systemd has it: %v", err)
	}
	m.Put("/pods/here")
	if err := tree.ApplyNode(nil); err != nil || !slices.Contains(paths(m), "/pods/here/kubepods/burstable") {
		t.Errorf("%v, %v", err, paths(m))
	}
}

// Larger reservations, or a machine with less memory than before, do not kill pods: they keep their current memory.
func TestApplyNode_KubepodsOverItsLimit(t *testing.T) {
	m, tree := newTree(false)
	tree.Settings.EnforcePods = true
	tree.Settings.Reserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("512Mi")}
	for used, want := range map[int64]int64{768 << 20: 768 << 20, 256 << 20: 512 << 20} {
		m.Use("/kubepods", used)
		if err := tree.ApplyNode(nil); err != nil {
			t.Fatal(err)
		}
		if got := m.Values()["/kubepods"].Memory; got != want {
			t.Errorf("with %d bytes in use the limit is %d, want %d", used, got, want)
		}
	}
}

// A class over its limit keeps its current memory, so that no process in it is killed.
func TestClass_NeverLimitedBelowUsage(t *testing.T) {
	m, tree := newTree(false)
	percent := int64(100)
	tree.Settings.QOSReserved = &percent
	m.Use("/kubepods/burstable", 2<<30)
	if err := tree.ApplyNode(nil); err != nil {
		t.Fatal(err)
	}
	if got := m.Values(); got["/kubepods/burstable"].Memory != 2<<30 || got["/kubepods/besteffort"].Memory != 1<<30 {
		t.Errorf("%+v", got)
	}
}

// Reservations are enforced on existing groups. A mistyped name neither creates nor moves a group.
func TestReservationsAreEnforcedOnGroupsThatAreThere(t *testing.T) {
	for systemd, at := range map[bool]string{false: "/daemons", true: "/daemons.slice"} {
		m, tree := newTree(systemd)
		tree.Settings.Reservations = []cgroups.Reservation{{Setting: "kubeReserved", Group: at,
			Reserved: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}}
		for what, err := range map[string]error{"applied": tree.Reserve(), "checked": tree.CheckGroups()} {
			if err == nil || !strings.Contains(err.Error(), "kubeReserved, cgroup "+at+": it does not exist") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if slices.Contains(paths(m), at) {
			t.Errorf("there are %v", paths(m))
		}
		m.Put(at)
		if err := errors.Join(tree.CheckGroups(), tree.Reserve()); err != nil || m.Values()[at].Memory != 1<<30 {
			t.Errorf("%v: %+v", err, m.Values()[at])
		}
	}
}
