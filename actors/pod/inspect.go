package pod

import (
	"slices"

	"github.com/playlet-dev/playlet/messages"
)

// Inspection is what a pod's actor says of itself.
type Inspection struct {
	Pod        string                `json:"pod"`
	Phase      Phase                 `json:"phase"`
	Waiting    *messages.Reason      `json:"waiting,omitempty"`
	Awaiting   []string              `json:"awaiting,omitempty"` // questions without an answer yet
	Round      uint32                `json:"round,omitempty"`    // how often all were restarted together
	Containers []ContainerInspection `json:"containers,omitempty"`
}

// ContainerInspection is one container in it.
type ContainerInspection struct {
	Name    string `json:"name"`
	Stage   string `json:"stage"`
	Attempt uint32 `json:"attempt"`
	State   string `json:"state,omitempty"`
	BackOff int    `json:"backOffStep,omitempty"`
}

// Name is the pod's namespace and name, or its UID while they are not known.
func (m *Machine) Name() string {
	if m.pod == nil {
		return m.uid
	}
	return m.pod.Namespace + "/" + m.pod.Name
}

// Inspect is a copy of what matters of the machine's state.
func (m *Machine) Inspect() Inspection {
	out := Inspection{Pod: m.Name(), Phase: m.phase, Round: m.rounds.now}
	if m.pod != nil {
		out.Waiting = m.waiting()
	}
	for k := range m.asks {
		name := k.what
		if k.of != "" {
			name += "/" + k.of
		}
		out.Awaiting = append(out.Awaiting, name)
	}
	slices.Sort(out.Awaiting)
	for _, c := range m.containers {
		ci := ContainerInspection{Name: c.name, Stage: string(c.stage), Attempt: c.attempt, BackOff: c.backoff.step}
		if f := c.newest(); f != nil {
			ci.State, ci.Attempt = string(f.State), f.Attempt
		}
		out.Containers = append(out.Containers, ci)
	}
	return out
}
