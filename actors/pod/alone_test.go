package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// alone is a machine without a world around it: it receives the messages of the test alone.
type alone struct {
	now     time.Time
	machine *Machine
	fx      []Effect // since the last take
}

// newAlone returns the machine of a pod that it has received.
func newAlone(pod *v1.Pod) *alone {
	w := newWorld(pod)
	a := &alone{now: w.now, machine: w.machine}
	a.hears(nil, messages.PodWanted{Pod: pod, Generation: 1})
	return a
}

// newReady returns the machine of a new pod that has its sandbox, s1, and its volumes, and awaits its first images.
func newReady(pod *v1.Pod) *alone {
	a := newAlone(pod)
	a.hears(
		messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: a.now}}, messages.VolumesMounted{UID: "u1"},
		grouped(pod),
		work.SandboxStarted{Fact: &messages.SandboxFact{ID: "s1", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}},
	)
	return a
}

func (a *alone) hears(msgs ...any) {
	for _, m := range msgs {
		a.fx = append(a.fx, a.machine.Step(a.now, m)...)
	}
}

// passes advances the clock.
func (a *alone) passes(d time.Duration) {
	a.now = a.now.Add(d)
	a.hears(nil)
}

// observes sends a reading that begins now.
func (a *alone) observes(sandboxes []messages.SandboxFact, containers ...messages.ContainerFact) {
	a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: a.now, Sandboxes: sandboxes,
		Containers: containers}})
}

// sandboxFacts returns the machine's sandboxes.
func (a *alone) sandboxFacts() (out []messages.SandboxFact) {
	for _, s := range a.machine.Sandboxes.All {
		out = append(out, s.SandboxFact)
	}
	return out
}

// take returns the effects since the last call.
func (a *alone) take() []Effect {
	out := a.fx
	a.fx = nil
	return out
}

// effects returns the effects of one type.
func effects[T Effect](fx []Effect) (out []T) {
	for _, e := range fx {
		if v, ok := e.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// sentOf returns the messages of one type among the effects.
func sentOf[T any](fx []Effect) (out []T) {
	for _, e := range fx {
		if order, ok := e.(OrderContainer); ok {
			e = Tell{Msg: order.Order}
		}
		if told, ok := e.(Tell); ok {
			if v, ok := told.Msg.(T); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

func grouped(pod *v1.Pod) messages.PodCgroupReady {
	return messages.PodCgroupReady{UID: "u1", Pod: pod, Parent: "/kubepods/podu1"}
}

func pulled(container, image string) messages.ImagePulled {
	return messages.ImagePulled{Key: messages.ImageKey{UID: "u1", Container: container}, Image: image, Ref: "sha256:" + image}
}
