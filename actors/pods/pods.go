// Package pods is the actor that merges what the sources want, and supervises one actor a pod.
//
// Admission. Each new pod is admitted once, by the pure function of actors/internal/admission, with the kubelet's reasons.
// A pod of the API server that is refused fails for good, since its controller makes another. A static pod waits with the
// same reason and is looked at again whenever something changes; the kubelet fails it until it is restarted. On a
// standalone node requests of cpu, memory and storage are not held against what there is, since no scheduler put the pods
// there. A pod that ends holds its resources until nothing of it runs. For a critical pod others are ended; which ones is
// on disk before they are told, and the critical pod is admitted at the latest after one and a half times their grace
// period (10 s at least).
//
// Pods of the API server. A pod that was admitted has sandboxes or a final status on disk, and is not admitted again. A
// refused pod gets its final status into its record and is handled like one that had finished. Fields that Playlet
// cannot honour yet (the table in podspec/fields.go) hold the pod in Pending and are named. An extended resource of an
// operator is only counted. When nothing of a deleted pod is left, its entry stays as over, and status is told so, until the
// source names the pod no more.
//
// Devices. A pod that asks for an extended resource is held, after all else admits it, until resources has answered
// AllocateDevices. The question says which pods hold devices, so that those of the others are taken back before. A refusal is
// the pod's, with the kubelet's reason UnexpectedAdmissionError.
//
// Phases. The actor reads its checkpoints, then asks what runs, then hears the sources (phase.go). Nothing is begun before it is
// known what runs, and what may be a source's stays until that has told.
//
// States. Each pod is an entry in one of the states of state.go, whose table has every transition. next decides, by the entry
// and a view of the others, which state is right; reconcile carries that out.
//
// Checkpoints. What is kept of a pod (its final status, why the node ends it, what was allocated to it) is a file of its own, in
// the folder "records". A write to a disk cannot be cancelled and may never return, so the files have one writer, which belongs
// to the process (actors/internal/overdue): one write is under way, and the next takes the newest content when it begins. A write
// of more than 15 s counts as failed, is named in health, and is tried again. Until its final status is on disk a pod removes
// nothing; where the disk cannot take it a deleted pod goes all the same, which makes room.
//
// The network. While the runtime has none a pod is prepared up to its sandbox and waits. What runs is not touched, and
// pods on the host's network do not wait.
//
// Resizes. The resources of a pod of the API server, its containers' (KEP-1287) and its own (KEP-5419), may change while it runs.
// It keeps what was allocated to it until the new ones fit beside what others have:
//
//	sources/apiserver ──a new spec──▶ pods ──fits, and is on the disk──▶ pods/<uid> ──▶ resources: the cgroup, as wide as both
//	                                   │                                     │              then containers, those that get less
//	                                   └─PodResizePending: Deferred, tried   └──▶ CRI       first, or a restart by resizePolicy
//	                                     again; Infeasible                         ──▶ resources: the cgroup, as wide as the new
//
// All of the agent, from cgroups to eviction and metrics, sees a pod with its allocated resources. These are in its record from
// its first resize on; until they are there the pod is of the generation before, since who waits for a resize looks at
// observedGeneration first. What was carried out is kept nowhere: see actors/pod.
package pods

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the pods actor needs.
type Options struct {
	// Sources are the configured sources; what no source wants is ended only when each has been heard.
	Sources []messages.Address
	// Unheard says that there are or were further sources, which are never heard: whose pods run is not known then, and
	// nothing that was found is ended, but for what carries the mark of Own.
	Unheard bool
	// Own is the annotation kubernetes.io/config.source of pods that no agent but this one makes.
	Own string
	// Cluster says that there is an API server: it is told of the status of every pod.
	Cluster bool
	Board   *board.Board
	// Dir is the folder of the agent's checkpoints.
	Dir string
	// Here is this node, as admission sees it.
	Here Here
	// Named, unless nil, is told the name (namespace/name) of each pod that is heard of, before anything else is done for it.
	Named func(uid, name string)
}

const (
	sweepEvery   = 20 * time.Second
	publishEvery = 2 * time.Millisecond  // changes within it are published together,
	publishEach  = 20 * time.Microsecond // and within this more for each pod
	askEvery     = 2 * time.Second       // for the audit, until it comes
)

// New makes the actor of the kind "pods".
func New(opts Options) supervisors.Constructor { return newWith(opts, newStore(opts.Dir)) }

func newWith(opts Options, s *store) supervisors.Constructor {
	if opts.Named == nil {
		opts.Named = func(string, string) {}
	}
	return func(string) supervisors.Actor {
		return &actor{opts: opts, checkpoints: checkpoints{store: s}, entries: map[string]*entry{}, phase: reading,
			sources: sources{all: opts.Sources, lists: map[messages.Address]messages.SourcePodsWanted{},
				unknown: map[messages.Address]messages.SourcePodsWanted{}},
			node: observed{heard: !opts.Here.Registered}}
	}
}

type actor struct {
	opts    Options
	began   time.Time
	phase   phase
	sources sources
	entries map[string]*entry // by UID
	wanted  []*entry          // those that a source names, in the order of the sources
	order   int64

	checkpoints checkpoints
	node        observed
	undecided   undecided
	publishing  publishing
	users       []*v1.Pod // of the API server's objects, as told last; nil: there were none yet
}

type (
	sweep    struct{}
	publish  struct{}
	auditDue struct{}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	a.undecided.trigger = triggerOf(msg)
	switch m := msg.(type) {
	case messages.Started:
		a.began = ctx.Now()
		a.load(ctx)
		a.askNode(ctx)
		ctx.After(sweepEvery, sweep{})
		a.changed(ctx)
	case loadDone:
		a.loadDone(ctx, m)
	case saveDone:
		a.saveDone(ctx, m)
	case roomDue:
		a.roomDue(ctx)
	case messages.SourcePodsWanted:
		a.sourceSays(ctx, m)
	case messages.ObjectProblems:
		if !slices.Equal(a.publishing.objects, m.Problems) {
			a.publishing.objects = m.Problems
			a.changed(ctx)
		}
	case messages.FoldersHeld:
		a.takeHeld(ctx, m.Folders)
	case messages.RuntimeAudited:
		a.auditEnded(ctx, m)
	case messages.RuntimeStateChanged:
		a.runtimeChanged(ctx, m)
	case messages.ServiceStarted:
		a.serviceStarted(ctx, m)
	case messages.GetDesired:
		a.with(m.UID, func(e *entry) { a.tell(ctx, e) })
	case messages.PodStatusChanged:
		a.with(m.UID, func(e *entry) { a.statusChanged(ctx, e, m) })
	case messages.PodEnded:
		a.with(m.UID, func(e *entry) { a.ended(ctx, e, m) })
	case messages.ChildStarted:
		a.with(m.Name, func(e *entry) { a.quarantined(ctx, e, nil) })
	case messages.ChildQuarantined:
		a.with(m.Name, func(e *entry) { a.quarantined(ctx, e, &m) })
	case messages.ChildStopped:
		a.with(m.Name, func(e *entry) { a.stopped(ctx, e) })
	case sweep:
		a.sweep(ctx)
		ctx.After(sweepEvery, sweep{})
	case auditDue:
		a.askAudit(ctx)
	case messages.DevicesAllocated:
		if e := a.entries[m.UID]; e != nil && e.state == held {
			e.devices.answer = &m
			a.reconcile(ctx)
		}
	case devicesDue:
		a.reconsider(ctx)
	case messages.NodePressureObserved:
		if a.node.measured(m) {
			a.reconsider(ctx)
		}
	case messages.NodeShutdownObserved:
		if a.node.shutdown != m.Underway {
			a.node.shutdown, a.sources.shutdown = m.Underway, m.Underway
			a.reconcile(ctx)
		}
	case messages.EvictPod:
		a.evict(ctx, m)
	case messages.NodeObserved:
		if a.node.observe(m) {
			a.reconsider(ctx)
		}
	case nodeDue:
		a.askNode(ctx)
		a.reconsider(ctx)
	case publish:
		a.publish(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

// with does something about a pod that has an actor.
func (a *actor) with(uid string, do func(*entry)) {
	if e := a.entries[uid]; e != nil && e.hasActor() {
		do(e)
	}
}

func (a *actor) quarantined(ctx supervisors.Context, e *entry, why *messages.ChildQuarantined) {
	if why != nil && e.quarantine == nil {
		quarantined := explain.Pod(&board.Pod{Pod: e.pod, Quarantine: why})
		recordEvent(ctx, e.pod, messages.ReasonQuarantined, explain.Event("", quarantined.Cause))
	}
	e.quarantine = why
	a.changed(ctx)
	a.step(ctx, e, &view{now: ctx.Now(), up: !a.node.shutdown})
}

func (a *actor) statusChanged(ctx supervisors.Context, e *entry, m messages.PodStatusChanged) {
	logWait(ctx, e, m.Waiting)
	freed := final(m.Status) && !final(e.status)
	metrics.StatusChanged(e.status, m.Status)
	e.status, e.phase, e.waiting, e.holds, e.taken = m.Status, m.Phase, m.Waiting, m.Holds, m.Generation
	a.changed(ctx)
	a.tellStatus(ctx, e)
	if freed {
		a.reconsider(ctx)
	}
	if m.Phase == "finished" { // that is all that one says whose final status was on the disk when its actor began
		a.settles(ctx, e)
	}
}

// logWait logs what a pod begins to wait for. Failed mounts, pulls and probes are logged where they fail; ends are no trouble.
func logWait(ctx supervisors.Context, e *entry, now *messages.Reason) {
	switch was := e.waiting; {
	case now == nil || slices.Contains([]string{messages.ReasonFailedMount, messages.ReasonPermissionChange,
		messages.ReasonPulling, messages.ReasonPullQueued, messages.ReasonKilling, messages.ReasonUnmounting,
		messages.ReasonRemoving, messages.ReasonUnhealthy}, now.Code):
	case was == nil || was.Code != now.Code || was.Message != now.Message:
		ctx.Log().Warn("a pod waits", "pod", e.name, "podUID", e.uid, "reason", now.Code, "message", now.Message)
	}
}

// serviceStarted tells every pod that a service has forgotten it.
func (a *actor) serviceStarted(ctx supervisors.Context, m messages.ServiceStarted) {
	if m.Service == messages.Status {
		a.tellStatuses(ctx)
		return
	}
	for uid, e := range a.entries {
		if e.hasActor() && m.Service != messages.Objects { // which no pod asks anything
			ctx.Tell(messages.PodAddress(uid), m)
		}
	}
	a.sweep(ctx)
}
