package pod

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

// rounds is how often all containers of the pod were restarted together, since one of them ended by a rule for that (KEP-5532).
//
// Each container carries the round that it was made in. A newest container that ended by such a rule begins the next round: what
// is of an earlier round is ended and then made again, init containers first, in the sandbox that is there. So a new actor finds
// in the runtime alone what is still to be done; nothing else is kept. An end counts once: what it began carries a higher round.
type rounds struct {
	now   uint32 // the pod's
	begun uint32 // the latest one of which it is known that nothing of an earlier one runs any more
	cause string // the end that began the present one
}

// noteRounds derives the pod's round from what is known of its containers.
func (m *Machine) noteRounds() {
	if m.Pod == nil || !translate.MayRestartAll(&m.Pod.Spec) || !m.live() && m.phase != Reading {
		return
	}
	r, found := &m.rounds, m.rounds.now
	for _, c := range m.Containers {
		if f := c.Newest(); f != nil && c.InRounds() {
			of := m.roundOf(f)
			r.begun = max(r.begun, of) // one is made only when nothing earlier runs
			if m.beginsRound(c, of) && of >= found {
				found, r.cause = of+1, fmt.Sprintf("container %s ended with exit code %d", c.Name, f.ExitCode)
			}
		}
	}
	if found = max(found, r.begun); found > r.now {
		r.now = found
		m.beginRound()
	}
	for _, c := range m.Containers {
		f := c.Newest()
		c.Earlier = f != nil && c.InRounds() && m.roundOf(f) < r.now
	}
}

// beginRound gives up what the containers wait for. What is on its way to start is found by a reading, which begins when such
// starts have ended.
func (m *Machine) beginRound() {
	m.readAgain()
	for _, c := range m.Containers {
		if !c.InRounds() {
			continue
		}
		if c.Retry = (restarts.Retry{}); c.Stage == messages.StageStarting {
			m.answerEnd(c)
		}
		if c.Actor && m.asking("spawn", c.Name) {
			m.restartActor(c) // it waits for the end of its back-off
		}
	}
}

// roundOf is the round that a container was made in. One that a kubelet made carries none: it is of the round of what had been
// made before it ended, since a round begins when all of the earlier one has ended.
func (m *Machine) roundOf(f *known.Attempt) (round uint32) {
	if n, marked := markedRound(&f.ContainerFact); marked {
		return n
	}
	for _, c := range m.Containers {
		if o := c.Newest(); o != nil && (f.State != messages.ContainerExited || o.CreatedAt.Before(f.FinishedAt)) {
			n, _ := markedRound(&o.ContainerFact)
			round = max(round, n)
		}
	}
	return round
}

func markedRound(f *messages.ContainerFact) (round uint32, marked bool) {
	n, err := strconv.ParseUint(f.Annotations[cri.AnnotationRound], 10, 31)
	return uint32(n), err == nil
}

// beginsRound says that the end of a container begins the round after its own. It does not where the pod had ended before it:
// then it is only one of those that are ended with the pod, and the pod is not run again.
func (m *Machine) beginsRound(c *known.Container, round uint32) bool {
	f := c.Exited()
	if !m.Set.RestartAll || f == nil || !translate.RestartsAll(c.Spec, f.ExitCode) {
		return false
	}
	goesOn := false
	for _, o := range m.Containers {
		if !o.InRounds() {
			continue
		}
		e := o.Exited()
		final := e != nil && m.roundOf(e) == round && !translate.RestartsAll(o.Spec, e.ExitCode) &&
			!e.FinishedAt.After(f.FinishedAt)
		if final && o.Init && o.Answer(m.Pod, e.ContainerFact) == restarts.FailPod {
			return false
		}
		goesOn = goesOn || !o.Init && !(final && o.Answer(m.Pod, e.ContainerFact) == restarts.Leave)
	}
	return goesOn
}

// restarting says that what is left of an earlier round is being ended.
func (m *Machine) restarting() bool {
	return m.live() && (m.rounds.begun < m.rounds.now || slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		return c.Earlier && c.Alive()
	}))
}
