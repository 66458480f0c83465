package pod

import (
	"slices"

	"github.com/playlet-dev/playlet/messages"
)

// noteEnds has the log say of each container how it ended, once. What had ended before this actor's first reading is old.
func (m *Machine) noteEnds() {
	for _, c := range m.Containers {
		for _, f := range slices.Backward(c.Attempts) {
			if f.State != messages.ContainerExited || f.Attempt < c.Ended {
				continue
			}
			c.Ended = f.Attempt + 1
			if m.phase != Reading {
				m.emit(Ended{f.ContainerFact})
				m.recordEnd(c, f.ContainerFact)
			}
		}
	}
}
