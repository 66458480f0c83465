// Package rounds derives from a pod's containers how often all of them were restarted together (KEP-5532), and which are still to
// be.
package rounds

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Rounds is how often all containers of the pod were restarted together, since one of them ended by a rule for that (KEP-5532).
//
// Each container carries the round that it was made in. A newest container that ended by such a rule begins the next round: what
// is of an earlier round is ended and then made again, init containers first, in the sandbox that is there. So a new actor finds
// in the runtime alone what is still to be done; nothing else is kept. An end counts once: what it began carries a higher round.
type Rounds struct {
	Now   uint32 // the pod's
	Begun uint32 // the latest one of which it is known that nothing of an earlier one runs any more
	Cause string // the end that began the present one
}

// Note derives the round from what is known of the containers and marks those that are of an earlier one. It reports whether
// a round begins.
func (r *Rounds) Note(s *known.State) (begins bool) {
	found := r.Now
	for _, c := range s.Containers {
		if f := c.Newest(); f != nil && c.InRounds() {
			of := roundOf(s, f)
			r.Begun = max(r.Begun, of) // one is made only when nothing earlier runs
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

// Left says that something of an earlier round runs, as far as is known.
func (r *Rounds) Left(s *known.State) bool {
	return r.Begun < r.Now || slices.ContainsFunc(s.Containers, func(c *known.Container) bool {
		return c.Earlier && c.Alive()
	})
}

// roundOf is the round that a container was made in. One that a kubelet made carries none: it is of the round of what had been
// made before it ended, since a round begins when all of the earlier one has ended.
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

// Marked is the round that a container carries; a kubelet marks none.
func Marked(f *messages.ContainerFact) (round uint32, marked bool) {
	n, err := strconv.ParseUint(f.Annotations[cri.AnnotationRound], 10, 31)
	return uint32(n), err == nil
}

// beginsRound says that the end of a container begins the round after its own. It does not where the pod had ended before it:
// then it is only one of those that are ended with the pod, and the pod is not run again.
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
		if final && o.Init && o.Answer(s.Pod, e.ContainerFact) == restarts.FailPod {
			return false
		}
		goesOn = goesOn || !o.Init && !(final && o.Answer(s.Pod, e.ContainerFact) == restarts.Leave)
	}
	return goesOn
}
