// Package pod is the actor of one pod. A pure state machine decides (machine.go and one file per phase), and this shell executes
// its effects; package work has the runtime's part of them. The actor supervises one actor per container. Their supervision
// strategy implements the pod's restartPolicy.
//
// The machine receives messages and returns effects. Package known holds the state of the pod, and settings the facts about the
// node. The packages restarts, starts, resources, rounds and podstatus derive results from both, and do not know the machine.
//
// A rule RestartAllContainers (KEP-5532) takes the transitions of a lost sandbox, but keeps the sandbox. A container that ends by
// its rule begins the next round. The phase preparing ends the containers of earlier rounds, and all are created again, init
// containers first.
package pod

import (
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/userns"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Host is the machine, for the actors of pods and containers. The command creates it once.
type Host = host.Host

type (
	// UserRanges gives ranges of user IDs to pods.
	UserRanges = userns.Ranges
	// UserOptions are the options of UserRanges.
	UserOptions = userns.Options
	// UserRange is a range of user IDs.
	UserRange = userns.Range
)

// The constructor and the checks of user ranges, for the command.
var (
	NewUserRanges = userns.New
	UserBounds    = userns.Bounds
	KernelUsers   = userns.Kernel
)

// Abilities are the optional features of a runtime.
type Abilities = host.Abilities

// Options configure the actors of pods.
type Options struct {
	Host     *host.Host
	Settings settings.Settings
}

// New returns the constructor of the actor kind "pod", named by UID.
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

// wake is the message of the machine's timer.
type wake struct{}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch msg.(type) {
	case messages.Started, wake:
		msg = nil // only time has passed
	case messages.ChildStopped:
		return // the machine ordered it
	}
	for _, e := range a.machine.Step(ctx.Now(), msg) {
		a.one(ctx, e)
	}
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any { return a.machine.Inspect() }

func (a *actor) one(ctx supervisors.Context, e Effect) {
	switch e := e.(type) {
	case Transition:
		ctx.Log().Info("phase transition", "from", e.From, "to", e.To, "pod", a.machine.Name())
		if e.To == Cleaning {
			a.opts.Host.EndAllHooks(a.uid)
		}
	case ContainerEnd:
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
	case OrderContainer:
		ctx.SpawnWith(e.Name, e.Order, e.Strategy)
	case UpdateContainer:
		ctx.Update(e.Name, e.Order, e.Strategy)
	case DropContainer:
		ctx.Stop(e.Name)
	case UnhandledMessage:
		ctx.Unhandled(e.Msg)
	case Wake:
		supervisors.Cancel(a.waker)
		a.waker = ctx.After(e.At.Sub(ctx.Now()), wake{})
	}
}

// Inspection is the answer of a pod's actor to an inspection.
type Inspection struct {
	Pod        string                `json:"pod"`
	Phase      Phase                 `json:"phase"`
	Waiting    *messages.Reason      `json:"waiting,omitempty"`
	Awaiting   []string              `json:"awaiting,omitempty"` // requests without an answer
	Round      uint32                `json:"round,omitempty"`    // number of restarts of all containers together
	Containers []ContainerInspection `json:"containers,omitempty"`
}

// ContainerInspection is one container of an Inspection.
type ContainerInspection struct {
	Name    string `json:"name"`
	Stage   string `json:"stage"`
	Attempt uint32 `json:"attempt"`
	State   string `json:"state,omitempty"`
	BackOff int    `json:"backOffStep,omitempty"`
}

// Name returns the pod's namespace and name, or its UID while they are unknown.
func (m *Machine) Name() string {
	if m.Pod == nil {
		return m.uid
	}
	return m.Pod.Namespace + "/" + m.Pod.Name
}

// Inspect returns a copy of the machine's main state.
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
