package pods

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// state is the stage of a pod in its life on this node, as seen by pods. The pod's own actor has finer phases.
type state string

const (
	unclaimed state = "unclaimed" // no source lists it: the runtime or a checkpoint has it, or an audit in progress may
	held      state = "held"      // a source lists it, and it has no actor: why is the cause of the wait
	running   state = "running"   // its actor has to run it
	failing   state = "failing"   // the node ends it, and it will stay as a failed one
	finished  state = "finished"  // it has its final status: its actor runs nothing, and keeps the remains
	ending    state = "ending"    // its actor has to end it and to remove everything
	replacing state = "replacing" // its actor is in quarantine, and an ender ends it in the actor's place
	clearing  state = "clearing"  // like replacing, for a failed pod that will stay as a failed one
	leaving   state = "leaving"   // its removal is complete; its actor is being stopped
	over      state = "over"      // deleted and removed; its object exists until the API server has the status
)

// edges are all transitions, each with its log message. Any other is a bug and fails the actor. A finished pod runs again only if
// no source lists it in between.
var edges = map[state]map[state]string{
	unclaimed: {held: "pod is named by a source", ending: "ending pod"},
	held: {unclaimed: "pod is not named any more", running: "new pod", failing: "new pod", finished: "new pod",
		ending: "ending pod"},
	running:   {failing: "pod is ended by the node", finished: "pod finished", ending: "ending pod"},
	failing:   {finished: "pod finished", ending: "ending pod", clearing: "pod is ended without its actor"},
	finished:  {ending: "ending pod"},
	ending:    {replacing: "pod is ended without its actor", leaving: "nothing of the pod is left"},
	replacing: {leaving: "nothing of the pod is left"},
	clearing:  {unclaimed: "nothing of the failed pod is left"},
	leaving:   {unclaimed: "pod is forgotten", over: "pod is kept until its object goes"},
	over:      {unclaimed: "pod is forgotten"},
}

// desiredPod is one pod as a source lists it.
type desiredPod struct {
	pod    *v1.Pod
	source messages.Address
	// manifest is the path of its manifest, of a source that reads files.
	manifest string
}

// unlisted returns the reason for the end of a pod that no source lists any more.
func (e *entry) unlisted() string {
	switch {
	case e.source == messages.Submit:
		return "it was removed (playlet rm)"
	case e.source == messages.File && e.manifest != "":
		return "its manifest " + e.manifest + " was removed or no longer contains it"
	case e.source == messages.URL:
		return "the manifests at --manifest-url no longer contain it"
	case e.source == messages.APIServer:
		return "its object is gone from the API server"
	}
	return "no source lists it any more"
}

// entry is the state of one pod.
type entry struct {
	uid       string
	name      string    // the full name; empty: not known yet
	firstSeen time.Time // first time
	state     state
	// wanted is the sources' current pod; nil: no source lists it.
	wanted *desiredPod
	// within is the grace period, in seconds, of a pod that no source lists any more; nil: its own.
	within *int64
	// audited is the pod in the last audit, while it has no actor.
	audited *messages.PodFacts
	// before holds the restart counts of the previous life, of a pod that returned before that life had ended.
	before *v1.PodStatus
	// goneAt is when the removal of the pod was complete. Audits read before it do not count.
	goneAt time.Time
	// record is the desired content of the disk, kept the content that the disk has or cannot take.
	record, saved record

	why    *messages.Reason // the cause of the wait while held
	hidden bool             // why is about this agent or transient, and is not reported
	// reported is the last report while held.
	reported struct {
		pod *v1.Pod
		why messages.Reason
	}
	nameless     string // the reason code of the last Event about a wait for its name
	keptRecorded bool   // an Event has named the finalizers that keep the object
	fields       fields
	life
}

// life is the part of an entry that is reset with each new actor.
type life struct {
	pod *v1.Pod // the version for its actor: with the allocated resources that are on disk
	resizeState
	allocating      allocationState
	rereading       nodeReread
	source          messages.Address
	manifest        string
	order           int64
	ending          *messages.Ending
	generation      uint64           // of the desired state
	ackedGeneration uint64           // the last generation that the pod's actor has acknowledged
	failed          time.Time        // when the failure was decided, in this life of the pods actor
	stuck           bool             // a missed grace period was reported
	claim           *admission.Claim // of pod
	status          *v1.PodStatus
	phase           string // of its actor
	released        bool   // nothing but dead containers and sandboxes is left of the deleted pod
	objectGoneSent  bool   // its actor was sent ObjectGone
	lingers         bool   // it ran when its actor began, with its final status, and its end is not reported yet
	waiting         *messages.Reason
	holds           []messages.Reason
	quarantine      *messages.ChildQuarantined
}

// resizeState is the state of the pod's resources (resize.go).
type resizeState struct {
	desired    *v1.Pod                 // the source's last version; nil if no source listed it
	admitted   *v1.Pod                 // with the resources that count against others
	allocation *podspec.Allocation     // the allocation for its actor; nil: the request of desired
	pending    *messages.PendingResize // the reason for which the request is not granted
	pendingOf  int64                   // the generation of the pod that pending belongs to
	since      time.Time               // time of the first request
}

// hasActor reports whether the pod has an actor or an ender.
func (e *entry) hasActor() bool {
	return e.state != unclaimed && e.state != held && e.state != over
}

// runs reports whether the pod runs or should run.
func (e *entry) runs() bool { return e.state == running || e.state == failing }

// ends reports whether the pod is being ended, for any cause.
func (e *entry) ends() bool { return e.state == ending || e.state == replacing || e.state == clearing }

// departs reports whether the running containers of the pod have to end.
func (e *entry) departs() bool { return e.ends() || e.state == failing || e.state == finished }

// orphan reports whether no source ever listed the pod.
func (e *entry) orphan() bool { return e.ending != nil && e.ending.Orphan }

// deleted reports whether the pod is deleted at the API server.
func (e *entry) deleted() bool {
	return e.wanted != nil && e.wanted.source == messages.APIServer && e.wanted.pod.DeletionTimestamp != nil
}

// objectGone reports whether the API server's object of a released pod is gone. An API server that was restored may have it
// without its deletion.
func (e *entry) objectGone() bool { return e.released && !e.deleted() }

// view is the input of next besides the entry.
type view struct {
	now       time.Time
	unready   *messages.Reason // the cause for which nothing can start yet
	lacks     *messages.Reason // the unsupported fields that prevent a start
	nameTaken *messages.Reason // another pod has its name
	successor bool             // a source lists another pod with its name
	orphan    bool             // its running containers belong to no source
	up        bool             // the machine is not shutting down
}

// effects are the actions in the new state.
type effects struct {
	why    *messages.Reason // the cause of the wait,
	hidden bool             // which is not reported
	admit  bool             // admission decides about it
	take   bool             // its actor takes the source's current version
	end    *messages.Ending // the mode of its end from now on
	renew  bool             // its actor is sent the change
}

// next returns the state that the pod should be in. It is pure.
func next(e *entry, v *view) (state, effects) {
	switch e.state {
	case unclaimed:
		switch {
		case e.wanted != nil:
			return held, effects{}
		case v.orphan:
			return ending, effects{end: &messages.Ending{
				Reason: "it was found running and no source lists it", Since: v.now, Orphan: true}}
		}
	case held:
		switch {
		case e.wanted == nil:
			return unclaimed, effects{}
		case v.unready != nil:
			return held, effects{why: v.unready, hidden: true}
		case e.deleted(): // nothing of it starts, and its remains are removed
			return ending, effects{end: deletion(v.now, e.wanted.pod)}
		case v.lacks != nil:
			return held, effects{why: v.lacks}
		case v.nameTaken != nil:
			return held, effects{why: v.nameTaken, hidden: true}
		}
		return held, effects{admit: true}
	case running, failing, finished:
		switch {
		case e.wanted == nil && v.successor:
			return ending, effects{renew: true, end: &messages.Ending{Reason: "a changed manifest takes its place", Since: v.now}}
		case e.wanted == nil:
			return ending, effects{renew: true, end: &messages.Ending{Reason: e.unlisted(), Since: v.now, Grace: e.within}}
		case e.deleted():
			return ending, effects{renew: true, end: deletion(v.now, e.wanted.pod), take: true}
		case e.state == finished && v.up && e.endedWithMachine():
			return ending, effects{renew: true, end: &messages.Ending{
				Reason: "it is run again: the shutdown of the machine that it was ended for was cancelled", Since: v.now}}
		case e.state == failing && e.quarantine != nil && e.saved.Fail != nil:
			return clearing, effects{end: &messages.Ending{Reason: e.saved.Fail.Message, Since: v.now}}
		}
		return e.state, effects{take: e.desired != e.wanted.pod, renew: e.desired != e.wanted.pod}
	case ending, replacing, clearing:
		fx := hurry(e)
		if e.state == ending && e.quarantine != nil {
			return replacing, fx
		}
		return e.state, fx
	case over:
		if !e.deleted() { // the object is gone, or the API server was restored to before the deletion: the pod starts over
			return unclaimed, effects{}
		}
	default: // messages alone end leaving
	}
	return e.state, effects{}
}

// deletion returns the end that the pod's deletion requests.
func deletion(now time.Time, p *v1.Pod) *messages.Ending {
	return &messages.Ending{Reason: "it was deleted", Since: now, Grace: p.DeletionGracePeriodSeconds}
}

// vanishedGrace is the grace period, in seconds, of an ending pod whose object disappears, or that is deleted by force. Both
// request a grace period of 0, and a pod has at least 1 s.
const vanishedGrace = 1

// hurry applies a change to an ending pod: its grace period can only become shorter. A pod that is listed again starts over when
// its removal is complete.
func hurry(e *entry) effects {
	var within *int64
	take := e.deleted() && e.desired != e.wanted.pod
	switch {
	case take:
		within = e.wanted.pod.DeletionGracePeriodSeconds
	case e.wanted == nil && e.source == messages.APIServer && e.pod.DeletionTimestamp != nil:
		within = new(int64(vanishedGrace))
	case e.wanted == nil:
		within = e.within
	}
	end := e.shortened(within)
	return effects{take: take, end: end, renew: take || end != nil || e.objectGone() && !e.objectGoneSent}
}

// grace returns the grace period of an ending pod, in seconds.
func (e *entry) grace() *int64 {
	return cmp.Or(e.ending.Grace, e.pod.Spec.TerminationGracePeriodSeconds)
}

// shortened returns the pod's end with this grace period, in seconds, or nil if the present one is not longer.
func (e *entry) shortened(grace *int64) *messages.Ending {
	if has := e.grace(); grace == nil || has != nil && *has <= *grace {
		return nil
	}
	end := *e.ending
	end.Grace = grace
	return &end
}

// enter is the only way from one state to another.
func (a *actor) enter(ctx supervisors.Context, e *entry, to state) {
	says, ok := edges[e.state][to]
	if !ok {
		panic(fmt.Sprintf("pods: %s of pod %s: no edge from %s to %s", e.name, e.uid, e.state, to))
	}
	why := ""
	switch {
	case to == replacing || to == clearing:
		why = "its actor is in quarantine: " + e.quarantine.Reason
	case to == ending:
		why = e.ending.Reason
	}
	from := e.state
	ctx.Log().Info(says, "pod", e.name, "podUID", e.uid, "from", from, "to", to, "why", why)
	e.state = to
	a.changed(ctx)
	a.entered(ctx, e, from)
}
