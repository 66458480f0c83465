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

// plugins remember what they are asked.
type plugins struct {
	retained []bool // whether "u" was, each time
	asked    int
	err      error
}

func (p *plugins) Retain(holds func(string) bool) { p.retained = append(p.retained, holds("u")) }

func (p *plugins) Allocate(context.Context, *v1.Pod) error {
	p.asked++
	return p.err
}

// Who asks is answered each time, with and without cgroups, and by an actor that was restarted meanwhile. Devices are taken
// back where it is known who holds them.
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
	n := newNode(t) // there are no plugins
	n.Send(messages.Pods, messages.AllocateDevices{UID: "u"})
	if sent := n.Take(); len(sent) != 1 || sent[0].Msg != (messages.DevicesAllocated{UID: "u"}) {
		t.Errorf("told %+v", sent)
	}
}
