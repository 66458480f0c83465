package resources

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// phase is where one pod's group is between what is wanted and what was done.
type phase string

const (
	waiting    phase = "Waiting"    // wanted; kubepods is not there yet. → making, removing
	making     phase = "Making"     // wanted, being made. → ready, backingOff; or making or removing, when the wish has changed
	ready      phase = "Ready"      // wanted, and there. → making, removing
	removing   phase = "Removing"   // not wanted, being removed. → gone, backingOff; or making or waiting, when it is wanted again
	backingOff phase = "BackingOff" // what is wanted failed, and is tried again later. → making, waiting, removing
	gone       phase = ""           // nothing is known of it. → waiting, making, removing
)

// entry is the book on one pod's group. One operation runs at a time; when it ends, it is looked whether it did what is wanted
// by then.
type entry struct {
	phase phase
	pod   *v1.Pod // whose group is wanted; nil: none is
	asked bool    // the pod waits for the word that it is removed
	busy  bool    // an operation is under way
	did   *v1.Pod // what that operation makes; nil: it removes

	parent  string
	reason  *messages.Reason // of the last failure
	fails   int              // in a row
	turn    uint64           // of the retry that is awaited
	missing int              // whole wishes in a row without this pod, since it last asked
}

// The events of one pod.
type (
	made struct {
		pod    *v1.Pod
		parent string
		err    error
	}
	removed  struct{ err error }
	retryDue struct{ turn uint64 }
)

// The effects.
type (
	tell        struct{ msg any } // to the pod's actor
	beginMake   struct{ pod *v1.Pod }
	beginRemove struct{}
	retryAfter  struct {
		d    time.Duration
		turn uint64
	}
	failed struct { // for the log
		what string
		err  error
	}
	mended    struct{ what string } // what failed before, if it did, is done
	beginNode struct{ pods []*v1.Pod }
	beginList struct{}
)

// want takes the pod's wish for a group.
func (e *entry) want(uid string, pod *v1.Pod) []any {
	same := e.pod == pod
	e.pod, e.asked, e.missing = pod, false, 0
	switch {
	case !same:
		e.fails, e.reason = 0, nil
	case e.phase == backingOff: // it is told what it waits for; the retry comes by itself
		return []any{tell{messages.PodCgroupFailed{UID: uid, Reason: *e.reason}}}
	}
	if !e.busy {
		e.phase = waiting // a group that is there is looked after once more: anyone may have changed it
	}
	return nil
}

// unwant takes the word that there is to be no group.
func (e *entry) unwant(uid string, asked bool) []any {
	same := e.pod == nil && e.phase != gone
	e.asked = e.asked || asked
	if same && e.phase == backingOff {
		return e.tellRemoved(uid, e.reason.Message)
	}
	e.pod, e.fails, e.reason = nil, 0, nil
	if !e.busy {
		e.phase = waiting
	}
	return nil
}

// next begins what is to be done now. nodeReady says that kubepods is there.
func (e *entry) next(nodeReady bool) []any {
	switch {
	case e.busy || e.phase == ready || e.phase == backingOff || e.phase == gone:
		return nil
	case e.pod == nil:
		e.phase, e.busy, e.did = removing, true, nil
		return []any{beginRemove{}}
	case !nodeReady:
		e.phase = waiting
		return nil
	}
	e.phase, e.busy, e.did = making, true, e.pod
	return []any{beginMake{e.pod}}
}

func (e *entry) onMade(uid string, m made, now time.Time, turn uint64) []any {
	e.busy = false
	if e.pod != m.pod {
		e.phase = waiting // the wish has changed meanwhile
		return nil
	}
	if m.err != nil {
		return e.fail(uid, m.err, now, turn)
	}
	e.phase, e.parent, e.fails, e.reason = ready, m.parent, 0, nil
	return []any{mended{uid}, tell{messages.PodCgroupReady{UID: uid, Pod: m.pod, Parent: m.parent}}}
}

func (e *entry) onRemoved(uid string, m removed, now time.Time, turn uint64) []any {
	e.busy = false
	if e.pod != nil {
		e.phase = waiting
		return nil
	}
	if m.err != nil {
		return e.fail(uid, m.err, now, turn)
	}
	e.phase = gone
	return append([]any{mended{uid}}, e.tellRemoved(uid, "")...)
}

func (e *entry) fail(uid string, err error, now time.Time, turn uint64) []any {
	e.fails++
	d := retryDelay(e.fails)
	e.phase, e.turn = backingOff, turn
	e.reason = &messages.Reason{
		Code: messages.ReasonCreatePodContainer, Message: "the pod's control group: " + err.Error(), RetryAt: now.Add(d),
	}
	out := []any{failed{uid, err}, retryAfter{d, turn}}
	if e.pod != nil {
		return append(out, tell{messages.PodCgroupFailed{UID: uid, Reason: *e.reason}})
	}
	return append(out, e.tellRemoved(uid, err.Error())...)
}

// tellRemoved answers the pod, once.
func (e *entry) tellRemoved(uid, left string) []any {
	if !e.asked {
		return nil
	}
	e.asked = false
	return []any{tell{messages.PodCgroupRemoved{UID: uid, Left: left}}}
}

func (e *entry) onRetry(turn uint64) {
	if e.phase == backingOff && e.turn == turn {
		e.phase = waiting
	}
}

// retryDelay is the wait after so many failures in a row: 1 s doubling to 10 s, as pods wait for other things.
func retryDelay(fails int) time.Duration {
	return min(time.Second<<min(max(fails-1, 0), 4), 10*time.Second)
}
