// Package rounds derives from a pod's containers how often all of them were restarted together (KEP-5532), and which restarts are
// still pending.
package rounds

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Rounds counts the restarts of all containers of the pod together, after one of them ended by a rule for that (KEP-5532).
//
// Each container carries the round of its creation. A newest container that ended by such a rule begins the next round:
// containers of earlier rounds are ended and then created again, init containers first, in the same sandbox. So a new actor finds
// the pending work in the runtime alone; nothing else is recorded. An end counts once: the containers after it carry a higher
// round.
type Rounds struct {
	Now   uint32 // the pod's
	Begun uint32 // the latest round without running containers of an earlier one
	Cause string // the end that began the present round
}

// Note derives the round from the containers and marks the earlier ones. It reports whether a round begins.
func (r *Rounds) Note(s *known.State) (begins bool) {
	found := r.Now
	for _, c := range s.Containers {
		if f := c.Newest(); f != nil && c.InRounds() {
			of := roundOf(s, f)
			r.Begun = max(r.Begun, of) // it is created only after the end of all earlier ones
			if beginsRound(s, c, of) && of >= found {
				found, r.Cause = of+1, fmt.Sprintf("container %s exited with code %d", c.Name, f.ExitCode)
			}
		}
	}
	found = max(found, r.Begun)
	begins, r.Now = found > r.Now, max(found, r.Now)
	for _, c := range s.Containers {
		f := c.Newest()
		c.Earlier = f != nil && c.InRounds() && roundOf(s, f) < r.Now
	}
	return begins
}

// Left reports whether a container of an earlier round may still run.
func (r *Rounds) Left(s *known.State) bool {
	return r.Begun < r.Now || slices.ContainsFunc(s.Containers, func(c *known.Container) bool {
		return c.Earlier && c.Alive()
	})
}

// roundOf returns the round of a container's creation. A container of a kubelet carries none: it belongs to the latest round that
// was created before its end, since a round begins when all of the earlier one has ended.
func roundOf(s *known.State, f *known.Attempt) (round uint32) {
	if n, marked := Marked(&f.ContainerFact); marked {
		return n
	}
	for _, c := range s.Containers {
		if o := c.Newest(); o != nil && (f.State != messages.ContainerExited || o.CreatedAt.Before(f.FinishedAt)) {
			n, _ := Marked(&o.ContainerFact)
			round = max(round, n)
		}
	}
	return round
}

// Marked returns the round that a container carries; a kubelet sets none.
func Marked(f *messages.ContainerFact) (round uint32, marked bool) {
	n, err := strconv.ParseUint(f.Annotations[cri.AnnotationRound], 10, 31)
	return uint32(n), err == nil
}

// beginsRound reports whether the end of a container begins the round after its own. It does not after the end of the pod: then
// the container was ended with the pod, which does not run again.
func beginsRound(s *known.State, c *known.Container, round uint32) bool {
	f := c.Exited()
	if !s.Set.RestartAll || f == nil || !translate.RestartsAll(c.Spec, f.ExitCode) {
		return false
	}
	goesOn := false
	for _, o := range s.Containers {
		if !o.InRounds() {
			continue
		}
		e := o.Exited()
		final := e != nil && roundOf(s, e) == round && !translate.RestartsAll(o.Spec, e.ExitCode) &&
			!e.FinishedAt.After(f.FinishedAt)
		if final && o.Init && o.Verdict(s.Pod, &e.ContainerFact) == messages.ExitEscalates {
			return false
		}
		goesOn = goesOn || !o.Init && !(final && o.Verdict(s.Pod, &e.ContainerFact) == messages.ExitStops)
	}
	return goesOn
}
