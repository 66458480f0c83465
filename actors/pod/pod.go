// Package pod is the actor of one pod: a pure state machine decides (machine.go and one file a phase), and this shell
// carries its effects out; what of these the runtime does is package work. It supervises one actor a container, and their
// supervision strategy is the pod's restartPolicy.
//
// The machine takes messages and gives effects. What it knows of the pod is in package known, and what it is told of the node in
// settings. What follows from these alone is in restarts, starts, resources, rounds and podstatus, which do not know the machine.
//
// A rule RestartAllContainers (KEP-5532) takes the edges of a lost sandbox, and the sandbox stays: the end of a container by its
// rule begins the next round, preparing ends what is of an earlier one, and all is made again, init containers first.
package pod

import (
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Host is what the actors of pods and containers know of the machine. It is made once, by the command.
type Host = host.Host

// Abilities are what not every runtime can do.
type Abilities = host.Abilities

// Options are what pods' actors need.
type Options struct {
	Host     *host.Host
	Settings settings.Settings
}

// New makes actors of the kind "pod", named by UID.
func New(opts Options) supervisors.Constructor {
	return func(uid string) supervisors.Actor {
		return &actor{opts: opts, uid: uid, machine: NewMachine(uid, opts.Settings)}
	}
}

type actor struct {
	opts    Options
	uid     string
	machine *Machine
	waker   supervisors.Timer
}

// wake is what the machine's timer posts.
type wake struct{}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch msg.(type) {
	case messages.Started, wake:
		msg = nil // only time has passed
	case messages.ChildStopped:
		return // on our own order, which the machine knows of
	}
	for _, e := range a.machine.Step(ctx.Now(), msg) {
		a.one(ctx, e)
	}
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any { return a.machine.Inspect() }

func (a *actor) one(ctx supervisors.Context, e Effect) {
	switch e := e.(type) {
	case Transition:
		ctx.Log().Info("phase transition", "from", e.From, "to", e.To, "pod", a.machine.Name())
		if e.To == Cleaning {
			a.opts.Host.EndAllHooks(a.uid)
		}
	case Ended:
		f := e.Fact
		ctx.Log().Info("container ended", "pod", a.machine.Name(), "container", f.Name, "id", f.ID, "attempt", f.Attempt,
			"exitCode", f.ExitCode, "reason", f.Reason)
	case Tell:
		ctx.Tell(e.To, e.Msg)
	case Reply:
		ctx.Reply(e.Msg)
	case work.Piece:
		ctx.Do(work.Of(e, a.opts.Host, a.machine.Wanted.Order))
	case ResizeTried:
		metrics.Resized(e.Success, e.Took)
	case SpawnContainer:
		ctx.SpawnWith(e.Name, e.Strategy)
	case RestartContainer:
		ctx.Restart(e.Name, 0)
	case DropContainer:
		ctx.Stop(e.Name)
	case Unhandled:
		ctx.Unhandled(e.Msg)
	case Wake:
		supervisors.Cancel(a.waker)
		a.waker = ctx.After(e.At.Sub(ctx.Now()), wake{})
	}
}

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
	if m.Pod == nil {
		return m.uid
	}
	return m.Pod.Namespace + "/" + m.Pod.Name
}

// Inspect is a copy of what matters of the machine's state.
func (m *Machine) Inspect() Inspection {
	out := Inspection{Pod: m.Name(), Phase: m.phase, Round: m.rounds.Now}
	if m.Pod != nil {
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
	for _, c := range m.Containers {
		ci := ContainerInspection{Name: c.Name, Stage: string(c.Stage()), Attempt: c.Attempt, BackOff: c.Backoff.Step}
		if f := c.Newest(); f != nil {
			ci.State, ci.Attempt = string(f.State), f.Attempt
		}
		out.Containers = append(out.Containers, ci)
	}
	return out
}
