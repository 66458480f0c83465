package known

import (
	"slices"
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

// A container begins idle. An edge outside the table fails, and the stage stays.
func TestStages(t *testing.T) {
	if c := (&Container{}); c.Stage() != messages.StageIdle || c.Ending() {
		t.Errorf("it begins %s", c.Stage())
	}
	all := []messages.ContainerStage{messages.StageIdle, messages.StageStarting, messages.StageHooking, messages.StageRunning,
		messages.StageWaiting, messages.StageStopping}
	for from, leads := range stages {
		for _, to := range all {
			c := &Container{Name: "c", Order: Order{stage: from}}
			failed := func() (failed bool) {
				defer func() { failed = recover() != nil }()
				c.Enter(to)
				return false
			}()
			if legal := slices.Contains(leads, to); failed == legal || legal != (c.Stage() == to) && from != to {
				t.Errorf("from %s to %s: failed %t, it is %s", from, to, failed, c.Stage())
			}
		}
	}
}
