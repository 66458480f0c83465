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

// state is where a pod is in its life on this node, as pods sees it. The pod's own actor has finer phases.
type state string

const (
	unclaimed state = "unclaimed" // no source names it: the runtime or a checkpoint knows of it, or an audit under way may
	held      state = "held"      // a source names it, and it has no actor: why says what it waits for
	running   state = "running"   // its actor is to run it
	failing   state = "failing"   // the node ends it, and it is to stay as a failed one
	finished  state = "finished"  // it has its final status: its actor runs nothing, and keeps what is left
	ending    state = "ending"    // its actor is to end it and to remove everything
	replacing state = "replacing" // its actor is in quarantine, and an ender ends it in the actor's place
	clearing  state = "clearing"  // so is the actor of one that failed, which is to stay as a failed one
	leaving   state = "leaving"   // nothing of it is left; its actor is being stopped
	over      state = "over"      // it was deleted and nothing is left; its object is there until the API server has the status
)

// edges are all transitions, with what the log says of each. An edge outside them is a bug and fails the actor. A pod that has
// finished runs again only if no source names it meanwhile.
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

// want is one pod as a source wants it.
type want struct {
	pod    *v1.Pod
	source messages.Address
}

// entry is all that is known of one pod.
type entry struct {
	uid   string
	name  string    // its full name, once that is known
	seen  time.Time // when it was seen first
	state state
	// want is the pod as the sources have it now; nil: none names it.
	want *want
	// within is what it has to end within, in seconds, once no source names it; nil: its own grace period.
	within *int64
	// found is what the last audit found of it, while it has no actor.
	found *messages.PodFacts
	// before is what is kept of its life before this one, where it came back before all of that had ended.
	before *v1.PodStatus
	// goneAt is when nothing was left of it: an audit that was read before says nothing of it.
	goneAt time.Time
	// record is what the disk is to have of it, kept what the disk has or cannot take.
	record, kept record

	why   *messages.Reason // what it waits for while it is held
	quiet bool             // why is about this agent or for a moment, and nobody is told of it
	// reported is what was reported last of it while it is held.
	reported struct {
		pod *v1.Pod
		why messages.Reason
	}
	nameless     string // why it waited for its name, as an Event told last
	keptRecorded bool   // an Event told by which finalizers its object is kept
	fields       fields
	life
}

// life is the part of an entry that begins anew with each actor.
type life struct {
	pod *v1.Pod // as its actor is to have it: with the resources that were allocated to it, as the disk has it
	resizing
	devices    devices
	source     messages.Address
	order      int64
	ending     *messages.Ending
	generation uint64           // of the desired state
	taken      uint64           // generation that the pod's actor has taken
	failed     time.Time        // since when it has to fail, in the life of pods
	stuck      bool             // that it does not end was reported
	claim      *admission.Claim // of pod
	status     *v1.PodStatus
	phase      string // of its actor
	lingers    bool   // it ran when its actor began, with its final status; the actor has not told yet that it ended
	waiting    *messages.Reason
	holds      []messages.Reason
	quarantine *messages.ChildQuarantined
}

// resizing is the part of it that is about the pod's resources (resize.go).
type resizing struct {
	desired    *v1.Pod                 // as the source had it last; nil where none named it
	admitted   *v1.Pod                 // with the resources that it holds against others
	allocation *podspec.Allocation     // what its actor is to have; nil: what desired asks for
	pending    *messages.PendingResize // why it cannot have what it asks for
	pendingOf  int64                   // the generation of the pod for which that was said
	since      time.Time               // when it was first asked for
}

// hasActor says that there is an actor for the pod, or an ender.
func (e *entry) hasActor() bool {
	return e.state != unclaimed && e.state != held && e.state != over
}

// runs says that the pod runs or is to run.
func (e *entry) runs() bool { return e.state == running || e.state == failing }

// ends says that the pod is on its way out, whoever wants that.
func (e *entry) ends() bool { return e.state == ending || e.state == replacing || e.state == clearing }

// departs says that what runs of the pod is to end.
func (e *entry) departs() bool { return e.ends() || e.state == failing || e.state == finished }

// orphan says that no source ever named the pod.
func (e *entry) orphan() bool { return e.ending != nil && e.ending.Orphan }

// deleted says that the API server asks for the pod's end.
func (e *entry) deleted() bool {
	return e.want != nil && e.want.source == messages.APIServer && e.want.pod.DeletionTimestamp != nil
}

// view is what next has to know besides the entry.
type view struct {
	now       time.Time
	unready   *messages.Reason // why nothing can be begun yet
	lacks     *messages.Reason // why it cannot be run as it is meant
	taken     *messages.Reason // its name is another pod's
	successor bool             // a source names another pod of its name
	orphan    bool             // what runs of it is nobody's
	up        bool             // the machine does not shut down
}

// effects are what is to be done in the new state.
type effects struct {
	why   *messages.Reason // it waits for this,
	quiet bool             // of which nobody is told
	admit bool             // admission decides over it
	take  bool             // its actor is to have the version that the source has now
	end   *messages.Ending // how it ends from now on
	renew bool             // its actor is told of what has changed
}

// next is the pod's state as it should be now. It is pure.
func next(e *entry, v *view) (state, effects) {
	switch e.state {
	case unclaimed:
		switch {
		case e.want != nil:
			return held, effects{}
		case v.orphan:
			return ending, effects{end: &messages.Ending{
				Reason: "it was found running and no source lists it", Since: v.now, Orphan: true}}
		}
	case held:
		switch {
		case e.want == nil:
			return unclaimed, effects{}
		case v.unready != nil:
			return held, effects{why: v.unready, quiet: true}
		case e.deleted(): // nothing of it is started, and what is left of it is removed
			return ending, effects{end: deletion(v.now, e.want.pod)}
		case v.lacks != nil:
			return held, effects{why: v.lacks}
		case v.taken != nil:
			return held, effects{why: v.taken, quiet: true}
		}
		return held, effects{admit: true}
	case running, failing, finished:
		switch {
		case e.want == nil && v.successor:
			return ending, effects{renew: true, end: &messages.Ending{Reason: "a changed manifest takes its place", Since: v.now}}
		case e.want == nil:
			return ending, effects{renew: true, end: &messages.Ending{Reason: "no source lists it any more", Since: v.now,
				Grace: e.within}}
		case e.deleted():
			return ending, effects{renew: true, end: deletion(v.now, e.want.pod), take: true}
		case e.state == finished && v.up && e.endedWithMachine():
			return ending, effects{renew: true, end: &messages.Ending{
				Reason: "it is run again: the shutdown of the machine that it was ended for was cancelled", Since: v.now}}
		case e.state == failing && e.quarantine != nil && e.kept.Fail != nil:
			return clearing, effects{end: &messages.Ending{Reason: e.kept.Fail.Message, Since: v.now}}
		}
		return e.state, effects{take: e.desired != e.want.pod, renew: e.desired != e.want.pod}
	case ending, replacing, clearing:
		fx := hurry(e)
		if e.state == ending && e.quarantine != nil {
			return replacing, fx
		}
		return e.state, fx
	case over:
		if !e.deleted() { // its object is gone, or the API server was set back to before its deletion: it begins anew
			return unclaimed, effects{}
		}
	default: // leaving ends by messages alone
	}
	return e.state, effects{}
}

// deletion is the end that the pod's deletion asks for.
func deletion(now time.Time, p *v1.Pod) *messages.Ending {
	return &messages.Ending{Reason: "it was deleted", Since: now, Grace: p.DeletionGracePeriodSeconds}
}

// vanishedGrace is what is left, in seconds, to a pod that ends already when its object goes, or that is removed by force: both
// ask for a grace period of 0, and a pod has 1 s at least.
const vanishedGrace = 1

// hurry takes a change of a pod that ends already: its grace period can only become shorter. A pod that is wanted again is made
// anew when nothing is left of it.
func hurry(e *entry) effects {
	var within *int64
	take := e.deleted() && e.desired != e.want.pod
	switch {
	case take:
		within = e.want.pod.DeletionGracePeriodSeconds
	case e.want == nil && e.source == messages.APIServer && e.pod.DeletionTimestamp != nil:
		within = new(int64(vanishedGrace))
	case e.want == nil:
		within = e.within
	}
	end := e.shortened(within)
	return effects{take: take, end: end, renew: take || end != nil}
}

// grace is what a pod that ends has, in seconds.
func (e *entry) grace() *int64 {
	return cmp.Or(e.ending.Grace, e.pod.Spec.TerminationGracePeriodSeconds)
}

// shortened is the pod's end with this grace period, in seconds; nil where it has no longer one.
func (e *entry) shortened(grace *int64) *messages.Ending {
	if has := e.grace(); grace == nil || has != nil && *has <= *grace {
		return nil
	}
	end := *e.ending
	end.Grace = grace
	return &end
}

// enter is the one way from a state to another.
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
