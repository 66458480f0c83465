package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/messages"
)

// verb is a kind of write.
type verb string

const (
	patchStatus  verb = "patch"
	deletePod    verb = "delete"
	createMirror verb = "create mirror"
	deleteMirror verb = "delete mirror"
)

// class is the priority of a write: lower ones go first.
type class int

const (
	ending class = iota
	readiness
	other
)

// stepDelay is how long a change of a pod that starts or ends waits for the next one. A pod that becomes ready within it is
// written once, when it is ready. A write costs an API server far more than it costs the agent.
//
// In a burst, the wait grows with the number of such pods, up to burstDelay: the writers then serve pods that are ready or over.
// It stays for burstDelay after the number has fallen, or the second half of a burst would be written shortly before its end.
const stepDelay, burstDelay = time.Second, 10 * time.Second

// job is one write. Immutable.
type job struct {
	key             string
	verb            verb
	class           class
	namespace, name string
	uid             types.UID // of the object; empty where it is created
	pod             string    // UID of the desired pod, for the log
	from, to        *v1.PodStatus
	mirror          *v1.Pod       // to create
	why             string        // the reason why a mirror pod is deleted
	patience        time.Duration // the longest wait for the next step of a start or end; 0: none
	step            bool          // an init container has ended, or the sandbox of an ending pod: patience counts from then
	foreign         bool          // another client deleted or changed the object
	after           time.Time
}

// refresh computes the next write of each changed line.
func (b *machine) refresh(now time.Time) {
	for l := range b.dirty {
		delete(b.dirty, l)
		l.next = nil
		if b.seen {
			l.next = b.evaluate(l, now)
		}
		switch {
		case l.next == nil:
			delete(b.todo, l)
			l.since = time.Time{}
		case l.since.IsZero():
			l.since = now
			fallthrough
		default:
			b.todo[l] = true
		}
		if l.next == nil || !l.next.step {
			l.stepped = time.Time{}
		} else if l.stepped.IsZero() {
			l.stepped = now
		}
		if l.next == nil && !l.busy {
			l.failure, l.failures, l.due = nil, 0, time.Time{}
			if l.observed == nil && len(l.wants) == 0 {
				delete(b.lines, l.key)
				delete(b.pendingChanges, l)
			}
		}
	}
}

// evaluate returns the next write of a line, or nil.
func (b *machine) evaluate(l *podWriter, now time.Time) *job {
	current := l.current()
	w := l.wanted(current)
	switch {
	case len(l.wants) > 0 && w == nil, w != nil && w.Static, current != nil && isMirror(current):
		return b.evaluateMirror(l, w, current, now)
	case w == nil || w.Status == nil || current == nil, undone(w, current):
		return nil
	}
	if j := l.patch(w, current, now); j != nil && !(w.Over && l.unwelcome()) {
		return j
	}
	if w.Over {
		j := l.job(deletePod, ending, w, current)
		j.after = l.deleteAfter
		return j
	}
	return nil
}

// undone reports whether the pod was deleted and its object is not. Either the deletion is not observed yet, or the API
// server was restored to an earlier state. The pod must run then, and no API server accepts a change from a final phase.
func undone(w *messages.PodStatusWanted, current *v1.Pod) bool {
	return (w.Over || w.Pod.DeletionTimestamp != nil) && current.DeletionTimestamp == nil
}

// evaluateMirror is evaluate for static pods.
func (b *machine) evaluateMirror(l *podWriter, w *messages.PodStatusWanted, mirror *v1.Pod, now time.Time) *job {
	switch {
	case w == nil && mirror == nil, w != nil && w.Kept:
		return nil
	case w == nil:
		if !b.sourcesSynced {
			return nil // its source may not have reported yet
		}
		return l.unmake(w, mirror, "its static pod is gone")
	case mirror == nil:
		if b.nodeUID == "" {
			return nil // NodeRestriction admits none without an owner
		}
		j := l.job(createMirror, other, w, nil)
		j.mirror = mirrorOf(w.Pod, b.node, b.nodeUID)
		if !l.ours {
			j.after = l.makeAfter
		}
		return j
	case mirror.DeletionTimestamp != nil:
		j := l.unmake(w, mirror, "someone deleted it")
		j.foreign = true
		return j
	}
	if why := stale(mirror, w.Pod, b.nodeUID); why != "" {
		j := l.unmake(w, mirror, why)
		j.foreign = mirror.Annotations[mirrorAnnotation] == hashOf(w.Pod) &&
			mirror.Annotations[contentsAnnotation] == contentsOf(w.Pod)
		return j
	}
	if w.Status == nil {
		return nil
	}
	// No API server accepts a change from a final phase.
	if finalstatus.Final(mirror.Status.Phase) && !finalstatus.Final(w.Status.Phase) {
		return l.unmake(w, mirror, "its static pod runs again")
	}
	return l.patch(w, mirror, now)
}

// finalTries is how often a final status may be rejected before the pod is deleted without it. Nothing of the pod is left on
// the node, and it must not keep its name for ever.
const finalTries = 4

// unwelcome reports whether the API server has rejected the pod's status finalTries times.
func (l *podWriter) unwelcome() bool {
	return l.failure != nil && l.failure.outcome == refused && l.failures >= finalTries
}

func (l *podWriter) unmake(w *messages.PodStatusWanted, mirror *v1.Pod, why string) *job {
	j := l.job(deleteMirror, ending, w, mirror)
	j.why, j.after = why, l.deleteAfter
	return j
}

// patch returns the write of a status, or nil if it would change nothing.
func (l *podWriter) patch(w *messages.PodStatusWanted, current *v1.Pod, now time.Time) *job {
	to := merge(current, w.Status, now)
	if w.Over {
		finalstatus.Settle(&current.Spec, to, now)
	}
	if equality.Semantic.DeepEqual(&current.Status, to) {
		return nil
	}
	if l.futile(current, to) {
		return nil
	}
	j := l.job(patchStatus, other, w, current)
	j.from, j.to = &current.Status, to
	switch {
	case w.Over:
		j.class = ending
	case current.DeletionTimestamp != nil && !isMirror(current) && !runs(to) && ready(to) != ready(j.from):
		// The final status follows the stop of the sandbox at once. If it does not, the pod becomes unready then, as with the
		// kubelet: endpoints publish it as serving until this is written.
		j.patience, j.step = burstDelay, !networked(to)
	case ready(to) != ready(j.from):
		j.class = readiness // of a deleted pod, too
	case current.DeletionTimestamp != nil && !isMirror(current):
		j.patience = burstDelay
	case to.Phase == v1.PodPending && j.from.Phase == to.Phase && stuck(to):
		j.patience = stepDelay
	case to.Phase == v1.PodPending && j.from.Phase == to.Phase && initialized(to) > initialized(j.from):
		j.patience, j.step = stepDelay, true // users wait for each; the next one begins within it
	case to.Phase == v1.PodPending && j.from.Phase == to.Phase:
		j.patience = burstDelay
	}
	return j
}

// runs reports whether a container runs.
func runs(s *v1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), func(c v1.ContainerStatus) bool {
		return c.State.Running != nil
	})
}

// networked reports whether the pod's sandbox is ready.
func networked(s *v1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReadyToStartContainers && c.Status == v1.ConditionTrue
	})
}

// initialized returns the number of init containers that have ended well.
func initialized(s *v1.PodStatus) (n int) {
	for _, c := range s.InitContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			n++
		}
	}
	return n
}

// stuck reports whether a container waits for a reason other than its turn.
func stuck(s *v1.PodStatus) bool {
	waits := func(c v1.ContainerStatus) bool {
		w := c.State.Waiting
		return w != nil && w.Reason != "" && w.Reason != messages.ReasonContainerCreating &&
			w.Reason != messages.ReasonPodInitializing
	}
	return slices.ContainsFunc(s.InitContainerStatuses, waits) || slices.ContainsFunc(s.ContainerStatuses, waits)
}

// futile reports whether this write was done before and changed nothing. An API server that lacks a field drops it, and would
// otherwise get the same write for ever.
func (l *podWriter) futile(current *v1.Pod, to *v1.PodStatus) bool {
	s := l.sent
	return s != nil && s.uid == current.UID && equality.Semantic.DeepEqual(s.to, to) &&
		equality.Semantic.DeepEqual(s.from, &current.Status) && equality.Semantic.DeepEqual(s.got, &current.Status)
}

func (l *podWriter) job(d verb, c class, w *messages.PodStatusWanted, object *v1.Pod) *job {
	j := &job{key: l.key, verb: d, class: c, namespace: l.namespace, name: l.name}
	if w != nil {
		j.pod = w.UID
	}
	if object != nil {
		j.uid = object.UID
	}
	return j
}

// take returns the writes to start now, the most urgent first, and when to call it again. A zero time means at the next
// change.
func (b *machine) take(now time.Time) (jobs []*job, again time.Time) {
	b.refresh(now)
	waiting := 0
	for l := range b.todo {
		if l.next.patience > stepDelay {
			waiting++
		}
	}
	if wait := lullOf(waiting); wait >= b.stepDelay || !now.Before(b.burstUntil) {
		b.stepDelay, b.burstUntil = wait, now.Add(burstDelay)
	}
	for b.busy < b.server.width(now) {
		var best *podWriter
		aged := (b.taken+1)%agedTurn == 0
		for l := range b.todo {
			if l.busy || b.starts(l).After(now) {
				continue
			}
			if best == nil || l.before(best, aged) {
				best = l
			}
		}
		if best == nil {
			break
		}
		best.busy = true
		b.busy++
		b.taken++
		delete(b.todo, best)
		jobs = append(jobs, best.next)
	}
	return jobs, b.again(now)
}

// again returns the earliest time at which a write that must wait may start.
func (b *machine) again(now time.Time) time.Time {
	var out time.Time
	for l := range b.todo {
		at := b.starts(l)
		if b.stepDelay > stepDelay && l.next.patience > stepDelay && at.After(b.burstUntil) {
			at = b.burstUntil // the waits may be shorter then
		}
		if b.server.until.After(at) {
			at = b.server.until
		}
		if !l.busy && at.After(now) && (out.IsZero() || at.Before(out)) {
			out = at
		}
	}
	return out
}

// starts returns the earliest time at which the write of a line may start.
func (b *machine) starts(l *podWriter) time.Time {
	at := l.due
	if l.next.after.After(at) {
		at = l.next.after
	}
	if l.next.patience == 0 {
		return at
	}
	settled := l.since.Add(min(l.next.patience, b.stepDelay))
	if l.next.step { // no longer than without the step
		settled = l.since.Add(b.stepDelay)
		if next := l.stepped.Add(stepDelay); next.Before(settled) {
			settled = next
		}
	}
	if settled.After(at) {
		return settled
	}
	return at
}

// lullOf returns the wait for the next change while this number of pods wait for one.
func lullOf(waiting int) time.Duration {
	return min(max(stepDelay, stepDelay*time.Duration(waiting)/writers), burstDelay)
}

// agedTurn is the number of writes per write that goes to the longest wait, whatever its class. Without it, pods that keep
// changing their readiness would block the statuses of others.
const agedTurn = 10

// before reports whether the write of l starts before the other one: by class unless aged, then by age. A pod has one write
// in progress at a time. Within a class, the longest wait is thus one write of each other pod.
func (l *podWriter) before(o *podWriter, aged bool) bool {
	if !aged && l.next.class != o.next.class {
		return l.next.class < o.next.class
	}
	if !l.since.Equal(o.since) {
		return l.since.Before(o.since)
	}
	return l.key < o.key
}
