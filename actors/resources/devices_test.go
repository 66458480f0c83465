package resources

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// plugins record their requests.
type plugins struct {
	retained []bool // whether "u" was retained, each time
	asked    int
	err      error
}

func (p *plugins) Retain(holds func(string) bool) { p.retained = append(p.retained, holds("u")) }

func (p *plugins) Allocate(context.Context, *v1.Pod) error {
	p.asked++
	return p.err
}

// Every request is answered, with and without cgroups, and after a restart of the actor. Devices are released once their holders
// are known.
func TestDevicesAreAllocated(t *testing.T) {
	p := &plugins{}
	ops := cri.NewOperations()
	answers := func(want messages.DevicesAllocated, ask messages.AllocateDevices) {
		t.Helper()
		k := supervisortest.New(t, messages.Resources, New(Options{Devices: p, Operations: ops})("resources"))
		k.Send(messages.Pods, ask)
		k.RunWork()
		sent := k.Take()
		if len(sent) != 1 || sent[0].To != messages.Pods || sent[0].Msg != want {
			t.Errorf("told %+v, want %+v", sent, want)
		}
	}
	answers(messages.DevicesAllocated{UID: "u"}, messages.AllocateDevices{UID: "u"})
	p.err = errors.New("none is left")
	answers(messages.DevicesAllocated{UID: "u", Refused: "none is left"},
		messages.AllocateDevices{UID: "u", Holding: map[string]bool{"u": true}, Heard: true})
	answers(messages.DevicesAllocated{UID: "v", Refused: "none is left"},
		messages.AllocateDevices{UID: "v", Holding: map[string]bool{"v": true}, Heard: true})
	if !slices.Equal(p.retained, []bool{true, false}) || p.asked != 3 {
		t.Errorf("retained %v, asked %d times", p.retained, p.asked)
	}
	n := newNode(t) // without plugins
	n.Send(messages.Pods, messages.AllocateDevices{UID: "u"})
	if sent := n.Take(); len(sent) != 1 || sent[0].Msg != (messages.DevicesAllocated{UID: "u"}) {
		t.Errorf("told %+v", sent)
	}
}
