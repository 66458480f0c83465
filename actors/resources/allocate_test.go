package resources

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// plugins record their requests.
type plugins struct {
	retained []bool // whether "u" was retained, each time
	asked    int
	released []string
	err      error
}

func (p *plugins) Release(uid string) { p.released = append(p.released, uid) }

func (p *plugins) Retain(holders map[string]string) {
	_, holds := holders["u"]
	p.retained = append(p.retained, holds)
}

func (p *plugins) Allocate(context.Context, *v1.Pod, *v1.Container, topology.Result) error {
	return nil
}

func (p *plugins) Fit(*v1.Pod) {}

func (p *plugins) Hints(*v1.Pod, *v1.Container) []topology.Request { return nil }

func (p *plugins) Commit() error {
	p.asked++
	return p.err
}

// Every request is answered, with and without cgroups, and after a restart of the actor. Devices are released once their holders
// are known.
func TestDevicesAreAllocated(t *testing.T) {
	p := &plugins{}
	ops := cri.NewOperations()
	answers := func(want messages.ResourcesAllocated, ask messages.AllocateResources) {
		t.Helper()
		ask.Pod = &v1.Pod{}
		want.Pod = ask.Pod
		k := supervisortest.New(t, messages.Resources, New(Options{Providers: []Provider{p}, Operations: ops})("resources"))
		k.Send(messages.Pods, ask)
		k.RunWork()
		sent := k.Take()
		if len(sent) != 1 || sent[0].To != messages.Pods || sent[0].Msg != want {
			t.Errorf("told %+v, want %+v", sent, want)
		}
	}
	answers(messages.ResourcesAllocated{UID: "u"}, messages.AllocateResources{UID: "u"})
	p.err = errors.New("none is left")
	answers(messages.ResourcesAllocated{UID: "u", Refused: "none is left"},
		messages.AllocateResources{UID: "u", Holding: map[string]string{"u": "ns/u"}, Heard: true})
	answers(messages.ResourcesAllocated{UID: "v", Refused: "none is left"},
		messages.AllocateResources{UID: "v", Holding: map[string]string{"v": "ns/v"}, Heard: true})
	if !slices.Equal(p.retained, []bool{true, false}) || p.asked != 3 {
		t.Errorf("retained %v, asked %d times", p.retained, p.asked)
	}
	n := newNode(t) // without plugins
	n.Send(messages.Pods, messages.AllocateResources{UID: "u"})
	if sent := n.Take(); len(sent) != 1 || sent[0].Msg != (messages.ResourcesAllocated{UID: "u"}) {
		t.Errorf("told %+v", sent)
	}
}

// If one provider refuses a pod, all release what the pod has; an answer has the pod of its question.
func TestAllocate_RefusalReleasesEverything(t *testing.T) {
	first, second := &plugins{}, &plugins{err: errors.New("none is left")}
	k := supervisortest.New(t, messages.Resources, New(Options{Providers: []Provider{first, second},
		Operations: cri.NewOperations()})("resources"))
	pod := &v1.Pod{}
	for _, want := range []int{1, 0} {
		first.released, second.released = nil, nil
		k.Send(messages.Pods, messages.AllocateResources{UID: "u", Pod: pod})
		k.RunWork()
		sent := k.Take()
		if len(sent) != 1 || sent[0].Msg.(messages.ResourcesAllocated).Pod != pod {
			t.Errorf("answered %+v", sent)
		}
		if len(first.released) != want || len(second.released) != want {
			t.Errorf("released %v and %v, want %d times", first.released, second.released, want)
		}
		second.err = nil
	}
}
