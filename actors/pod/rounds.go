package pod

import (
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// noteRounds derives the pod's round from what is known of its containers.
func (m *Machine) noteRounds() {
	if m.Pod != nil && translate.MayRestartAll(&m.Pod.Spec) && (m.live() || m.phase == Reading) && m.rounds.Note(&m.State) {
		m.beginRound()
	}
}

// restarting says that what is left of an earlier round is being ended.
func (m *Machine) restarting() bool { return m.live() && m.rounds.Left(&m.State) }

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
