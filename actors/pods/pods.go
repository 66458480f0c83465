// Package pods is the actor that merges the pods of all sources and supervises one actor per pod.
//
// Admission. Each new pod is admitted once, by the pure function of actors/internal/admission, with the kubelet's reasons. A
// refused pod of the API server fails for good, since its controller creates another. Before a refusal for the Node's labels,
// taints or own resources, the Node is read again, because the watch may lag behind the scheduler's. A static pod waits with the
// same reason and is reconsidered at each change; the kubelet fails it until the kubelet is restarted. On a standalone node
// requests of cpu, memory and storage are not compared with the capacity, since no scheduler placed the pods. An ending pod
// holds its resources until none of its containers runs. A critical pod preempts others. The choice is on disk before the
// victims receive it, and the critical pod is admitted after at most one and a half times their grace period (at least 10 s).
//
// Pods of the API server. An admitted pod has sandboxes or a final status on disk, and is not admitted again. A refused pod gets
// its final status in its record and is handled like a finished one. Fields that Playlet does not support yet (the table in
// podspec/fields.go) hold the pod in Pending and are named. Extended resources of an operator are only counted. When nothing of a
// deleted pod is left, its entry stays in the state over, as status is informed, until the source no longer lists the pod.
//
// CPUs and devices. A pod that has some to itself is held, as the last step of admission, until resources has answered
// AllocateResources. The request lists the holders, so that the CPUs and devices of all other pods are reclaimed first. After a
// refusal the pod fails with the kubelet's reason, UnexpectedAdmissionError or SMTAlignmentError; a static pod waits with it,
// and also for its device plugin.
// Exclusive CPUs are reclaimed as soon as a pod has ended (ResourcesHeld).
//
// Phases. The actor reads its checkpoints, audits the runtime, then waits for the sources (phase.go). Nothing starts before the
// audit is complete. A pod that may belong to a source stays until that source has reported.
//
// States. Each pod is an entry in one of the states of state.go, with a table of all transitions. next is pure: it computes the
// state from the entry and a view of the others. reconcile applies it.
//
// Checkpoints. The record of a pod (final status, failure decided by the node, allocation) is one file in the folder "records". A
// write to a disk cannot be cancelled and may never return, so the files have one writer, which belongs to the process
// (actors/internal/overdue): one write is in progress, and the next takes the newest content when it begins. A write of more than
// 15 s counts as failed, is named in health, and is retried. A deleted pod keeps its containers in the runtime until its object
// is gone, or its final status is on disk. If the disk accepts no write, it is removed all the same, which makes room.
//
// The network. While the runtime has no network, a pod is prepared up to its sandbox and waits. Running pods are not touched, and
// pods on the host's network do not wait.
//
// Resizes. The resources of a pod of the API server, per container (KEP-1287) and per pod (KEP-5419), may change while it runs.
// It keeps its allocation until the new resources fit beside the claims of other pods:
//
//	sources/apiserver ──a new spec──▶ pods ──fits, and is on the disk──▶ pods/<uid> ──▶ resources: the cgroup, as wide as both
//	                                   │                                     │              then containers, those that get less
//	                                   └─PodResizePending: Deferred, tried   └──▶ CRI       first, or a restart by resizePolicy
//	                                     again; Infeasible                         ──▶ resources: the cgroup, as wide as the new
//
// The whole agent, from cgroups to eviction and metrics, sees a pod with its allocated resources. The record holds them from the
// first resize on. Until then the pod keeps its previous generation, since a client that waits for a resize reads
// observedGeneration first. The resources in effect are not recorded: see actors/pod.
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

// Options configure the pods actor.
type Options struct {
	// Sources are the configured sources. A pod that no source lists is ended only after each source has reported.
	Sources []messages.Address
	// Unheard reports that further sources exist or existed, which never report. The owners of running pods are unknown then, so
	// that only found pods with the mark Own are ended.
	Unheard bool
	// Own is the annotation kubernetes.io/config.source of pods that only this agent creates.
	Own string
	// Cluster reports that there is an API server, which receives the status of every pod.
	Cluster bool
	Board   *board.Board
	// Dir is the folder of the agent's checkpoints.
	Dir string
	// LocalNode is this node's own description, for admission.
	LocalNode LocalNode
	// Named, unless nil, is called with the name (namespace/name) of each pod before any other work for it.
	Named func(uid, name string)
}

const (
	sweepEvery   = 20 * time.Second
	publishEvery = 2 * time.Millisecond  // changes within this period are published together,
	publishEach  = 20 * time.Microsecond // which is extended by this for each pod
	askEvery     = 2 * time.Second       // period of repeated requests for the audit and for the Node
)

// New returns the constructor of the actor kind "pods".
func New(opts Options) supervisors.Constructor { return newWith(opts, newStore(opts.Dir)) }

func newWith(opts Options, s *store) supervisors.Constructor {
	if opts.Named == nil {
		opts.Named = func(string, string) {}
	}
	return func(string) supervisors.Actor {
		return &actor{opts: opts, checkpoints: checkpoints{store: s}, entries: map[string]*entry{}, phase: reading,
			sources: sources{all: opts.Sources, lists: map[messages.Address]messages.SourcePodsWanted{},
				unknown: map[messages.Address]messages.SourcePodsWanted{}},
			node: nodeState{received: !opts.LocalNode.Registered}}
	}
}

type actor struct {
	opts    Options
	began   time.Time
	phase   phase
	sources sources
	entries map[string]*entry // by UID
	wanted  []*entry          // entries that a source lists, in the order of the sources
	order   int64

	checkpoints checkpoints
	node        nodeState
	waiting     waitState
	publishing  publishState
	users       []*v1.Pod         // of the API server's objects, as last sent; nil: none yet
	held        map[string]string // the pods that held CPUs and devices, when that was last looked at
}

type (
	sweep    struct{}
	publish  struct{}
	auditDue struct{}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	a.waiting.trigger = triggerOf(msg)
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
	case messages.ResourcesAllocated:
		if e := a.entries[m.UID]; e != nil && e.state == held && e.allocating.receive(m) {
			a.reconcile(ctx)
		}
	case allocateDue:
		a.reconsider(ctx)
	case messages.DevicesListed:
		a.askAgain(ctx)
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

// with calls do for a pod that has an actor.
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
	e.status, e.phase, e.waiting, e.holds, e.ackedGeneration = m.Status, m.Phase, m.Waiting, m.Holds, m.Generation
	a.changed(ctx)
	a.sendStatus(ctx, e)
	if freed {
		a.sendHolding(ctx, false)
		a.askAgain(ctx)
	}
	if m.Phase == "finished" { // the only report of an actor that began with a final status on disk
		a.settles(ctx, e)
	}
}

// logWait logs the cause of a new wait. Failed mounts, pulls and probes are logged where they fail; the steps of an end are
// normal.
func logWait(ctx supervisors.Context, e *entry, now *messages.Reason) {
	switch was := e.waiting; {
	case now == nil || slices.Contains([]string{messages.ReasonFailedMount, messages.ReasonPermissionChange,
		messages.ReasonPulling, messages.ReasonPullQueued, messages.ReasonKilling, messages.ReasonUnmounting,
		messages.ReasonRemoving, messages.ReasonUnhealthy, messages.ReasonAwaitDrivers,
		messages.ReasonContainerCreating}, now.Code):
	case was == nil || was.Code != now.Code || was.Message != now.Message:
		ctx.Log().Warn("a pod waits", "pod", e.name, "podUID", e.uid, "reason", now.Code, "message", now.Message)
	}
}

// serviceStarted informs every pod that a service has restarted without state.
func (a *actor) serviceStarted(ctx supervisors.Context, m messages.ServiceStarted) {
	if m.Service == messages.Status {
		a.sendStatuses(ctx)
		return
	}
	for uid, e := range a.entries {
		if e.hasActor() && m.Service != messages.Objects { // pods send it no requests
			ctx.Tell(messages.PodAddress(uid), m)
		}
	}
	a.sweep(ctx)
}
