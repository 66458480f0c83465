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
// refused pod gets its final status into the checkpoint and is handled like one that had finished. Fields that Playlet
// cannot honour yet (the table in podspec/fields.go) hold the pod in Pending and are named. An extended resource of an
// operator is only counted. One that a kubelet's device plugins gave, by the kubelet's checkpoint, is held. When nothing
// of a deleted pod is left, its entry stays as over, and status is told so, until the source names the pod no more.
//
// Checkpoints. A write to a disk cannot be cancelled and may never return. So each of the two files has one writer that
// belongs to the process (actors/internal/overdue): one write is under way, and the next takes the newest content when it
// begins. A write of more than 15 s counts as failed, is named in health, and is tried again. Until its final status is on
// disk a pod removes nothing; where the disk cannot take it a deleted pod goes all the same, which makes room.
//
// The network. While the runtime has none a pod is prepared up to its sandbox and waits. What runs is not touched, and
// pods on the host's network do not wait.
package pods

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/board"
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
	// FinishedPath is the checkpoint of pods that finished by themselves. Beside it lies that of pods that the node ends.
	FinishedPath string
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
func New(opts Options) supervisors.Constructor { return newWith(opts, newDisk(opts.FinishedPath)) }

func newWith(opts Options, d disk) supervisors.Constructor {
	return func(string) supervisors.Actor {
		return &actor{
			opts: opts, disk: d, wishes: map[messages.Address]messages.SourcePodsWanted{}, entries: map[string]*entry{},
			unknown: map[messages.Address]messages.SourcePodsWanted{}, goneAt: map[string]time.Time{},
			finished: map[string]*v1.PodStatus{}, fields: map[types.UID]fieldsOf{},
			over: map[string]*overPod{}, holding: map[string]*v1.Pod{},
			failing: failing{pods: map[string]messages.PodFailure{}, kept: map[string]bool{}}, unwritten: map[string]string{},
		}
	}
}

type actor struct {
	opts    Options
	disk    disk
	wishes  map[messages.Address]messages.SourcePodsWanted
	unknown map[messages.Address]messages.SourcePodsWanted // of sources that cannot say yet what they want
	entries map[string]*entry                              // by UID
	order   int64
	began   time.Time
	audit   *messages.RuntimeAudited
	goneAt  map[string]time.Time // UIDs that are gone since the last audit
	runtime messages.RuntimeStateChanged
	// objectProblems are told of beside those of the sources.
	objectProblems []messages.ManifestProblem

	loaded   bool                     // the checkpoint has been read
	complete bool                     // all sources have been heard, and what runs is known
	finished map[string]*v1.PodStatus // by UID
	fields   map[types.UID]fieldsOf   // see unsupportedFields
	saving   bool
	unsaved  bool
	// unwritten are sentences on the checkpoints that cannot be written, by path.
	unwritten map[string]string

	over    map[string]*overPod        // by UID
	holding map[string]*v1.Pod         // by UID: pods that cannot be run, as they were told of
	waits   map[string]messages.Reason // by UID: pods that are wanted and not admitted yet
	node    observed
	failing failing
	roomAt  time.Time              // when it is looked again at pods that wait for the end of others
	under   []v1.NodeConditionType // what the node is short of, as measured last

	dirty bool      // a snapshot is to be published
	users []*v1.Pod // of the API server's objects, as told last
	uses  bool      // there were some
}

// entry is the book on one pod that is there.
type entry struct {
	pod    *v1.Pod
	source messages.Address
	order  int64
	ending *messages.Ending
	turn   uint64 // of the wish
	taken  uint64 // turn of the wish that the pod's actor has taken
	gone   bool   // its actor is being stopped for good
	// unanswered says that it ended by itself and waits for the word that this is on the disk.
	unanswered bool
	fail       *messages.PodFailure
	failed     time.Time        // since when it has to fail, in this actor's life
	stuck      bool             // it was told that it does not end
	claim      *admission.Claim // of pod
	status     *v1.PodStatus
	phase      string
	waiting    *messages.Reason
	jail       *messages.ChildQuarantined
	// replaced is set once its actor, which is in quarantine, is stopped so that an ender ends the pod in its place.
	replaced bool
}

type (
	sweep    struct{}
	publish  struct{}
	auditDue struct{}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.began = ctx.Now()
		a.load(ctx)
		a.askAudit(ctx)
		a.askNode(ctx)
		ctx.After(sweepEvery, sweep{})
		a.changed(ctx)
	case loadDone:
		a.loadDone(ctx, m)
	case saveDone:
		a.saveDone(ctx, m)
	case failingSaved:
		a.failingSaved(ctx, m)
	case roomDue:
		a.roomDue(ctx)
	case messages.SourcePodsWanted:
		a.wish(ctx, m)
	case messages.ObjectProblems:
		if !slices.Equal(a.objectProblems, m.Problems) {
			a.objectProblems = m.Problems
			a.changed(ctx)
		}
	case messages.RuntimeAudited:
		a.audited(ctx, m)
	case messages.RuntimeStateChanged:
		a.runtimeChanged(ctx, m)
	case messages.ServiceStarted:
		if m.Service == messages.Status {
			a.tellStatuses(ctx)
			return
		}
		a.forward(ctx, m)
	case messages.GetDesired, messages.PodStatusChanged, messages.PodEnded, messages.ChildStarted, messages.ChildStopped,
		messages.ChildQuarantined:
		a.ofPod(ctx, m)
	case sweep:
		a.sweep(ctx)
		ctx.After(sweepEvery, sweep{})
	case auditDue:
		a.askAudit(ctx)
	case messages.NodePressureObserved:
		a.pressures(ctx, m)
	case messages.NodeObserved:
		a.nodeObserved(ctx, m)
	case nodeDue:
		a.askNode(ctx)
		a.reconsider(ctx)
	case publish:
		a.publish(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

// ofPod handles what concerns one pod.
func (a *actor) ofPod(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.GetDesired:
		if e := a.entries[m.UID]; e != nil && !e.gone {
			a.tell(ctx, e)
		}
	case messages.PodStatusChanged:
		if e := a.entries[m.UID]; e != nil {
			logWait(ctx, e, m.Waiting)
			freed := ended(m.Status) && !ended(e.status)
			e.status, e.phase, e.waiting, e.taken = m.Status, m.Phase, m.Waiting, m.Turn
			a.changed(ctx)
			if e.ending == nil || !e.ending.Orphan {
				a.tellStatus(ctx, e.wanted())
			}
			if freed {
				a.reconsider(ctx)
			}
		}
	case messages.PodEnded:
		a.ended(ctx, m)
	case messages.ChildStarted:
		if e := a.entries[m.Name]; e != nil {
			e.jail = nil
			a.changed(ctx)
		}
	case messages.ChildStopped:
		if e := a.entries[m.Name]; e != nil && e.replaced && !e.gone {
			ctx.SpawnKind("ender", m.Name)
			return
		}
		a.forget(ctx, m.Name)
	case messages.ChildQuarantined:
		if e := a.entries[m.Name]; e != nil {
			e.jail = &m
			a.changed(ctx)
			a.replace(ctx, e)
		}
	}
}

// logWait tells the log of what a pod begins to wait for. Failed mounts are told by volumes, each volume's own, and pulls
// by images.
func logWait(ctx supervisors.Context, e *entry, now *messages.Reason) {
	switch was := e.waiting; {
	case now == nil || now.Code == messages.ReasonFailedMount || now.Code == messages.ReasonPulling ||
		now.Code == messages.ReasonPullQueued:
	case was == nil || was.Code != now.Code || was.Message != now.Message:
		ctx.Log().Warn("a pod waits", "pod", fullName(e.pod), "podUID", e.pod.UID, "reason", now.Code, "message", now.Message)
	}
}

// wish takes the whole wish of one source.
func (a *actor) wish(ctx supervisors.Context, m messages.SourcePodsWanted) {
	for _, p := range m.Pods {
		a.named(string(p.UID), p)
	}
	if m.Unknown {
		a.unknown[m.Source] = m
		a.changed(ctx)
		return
	}
	delete(a.unknown, m.Source)
	a.wishes[m.Source] = m
	a.reconcile(ctx)
}

// askAudit asks what runs already, until that is known.
func (a *actor) askAudit(ctx supervisors.Context) {
	if a.audit == nil {
		ctx.Tell(messages.Runtime, messages.GetAudit{})
		ctx.After(askEvery, auditDue{})
	}
}

// heard says that every source there is has told its wish. Without any source nobody knows whose pods these are.
func (a *actor) heard() bool { return !a.opts.Unheard && a.told() }

// told says that every source listed has told its wish.
func (a *actor) told() bool {
	if len(a.opts.Sources) == 0 {
		return false
	}
	for _, s := range a.opts.Sources {
		if _, ok := a.wishes[s]; !ok {
			return false
		}
	}
	return true
}

// renew tells a pod its changed wish.
func (a *actor) renew(ctx supervisors.Context, e *entry) {
	e.turn++
	a.tell(ctx, e)
}

func (a *actor) tell(ctx supervisors.Context, e *entry) {
	uid := string(e.pod.UID)
	ctx.Tell(messages.PodAddress(uid), messages.PodWanted{
		Pod: e.pod, Turn: e.turn, Final: a.finished[uid], Unkept: e.unanswered, Last: e.last(), Order: e.order, Ending: e.ending,
		NoNetwork: e.noNetwork(a.runtime), Fail: a.failure(e),
	})
}

// replace has an ender end a pod whose actor is in quarantine: it would not be tried again for minutes, and would panic again.
func (a *actor) replace(ctx supervisors.Context, e *entry) {
	if e.jail == nil || e.ending == nil || e.replaced || e.gone {
		return
	}
	e.replaced = true
	ctx.Log().Warn("the actor of a pod that is to end is in quarantine; the pod is ended without it", "pod", fullName(e.pod),
		"podUID", e.pod.UID,
		"reason", e.jail.Reason)
	ctx.Stop(string(e.pod.UID))
}

// forget drops a pod of which nothing is left; a successor that waited for its name may start.
func (a *actor) forget(ctx supervisors.Context, uid string) {
	e := a.entries[uid]
	if e == nil || !e.gone {
		return
	}
	delete(a.entries, uid)
	a.goneAt[uid] = ctx.Now()
	a.dropFailing(ctx, uid)
	if !a.laidOver(ctx, e) && a.finished[uid] != nil {
		delete(a.finished, uid)
		a.save(ctx)
	}
	a.reconcile(ctx)
	a.tellStatuses(ctx)
}

// forward tells every pod that a service has forgotten it.
func (a *actor) forward(ctx supervisors.Context, m messages.ServiceStarted) {
	for uid := range a.entries {
		if m.Service != messages.Objects { // which no pod asks anything
			ctx.Tell(messages.PodAddress(uid), m)
		}
	}
	a.sweep(ctx)
}
