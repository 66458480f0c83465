package registration

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// turns are the reasons of events about conditions that became true, and that ceased to be; the kubelet's.
var turns = map[v1.NodeConditionType][2]string{
	v1.NodeReady:          {"NodeReady", "NodeNotReady"},
	v1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	v1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	v1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
}

// nodeEvents are the Events about changes of the Node. was is nil where it is new: then only its pressures are recorded, as
// by the kubelet.
func nodeEvents(was, now *v1.Node, at time.Time) []messages.RecordEvent {
	var out []messages.RecordEvent
	record := func(reason string) {
		out = append(out, messages.NodeEvent(now.Name, v1.EventTypeNormal, reason,
			fmt.Sprintf("Node %s status is now: %s", now.Name, reason), at))
	}
	made := was == nil
	if made {
		was = &v1.Node{}
	}
	for _, c := range now.Status.Conditions {
		before := condition(was, c.Type)
		reasons, known := turns[c.Type]
		switch {
		case !known || before == nil && c.Type == v1.NodeReady || before != nil && before.Status == c.Status:
		case c.Status == v1.ConditionTrue:
			record(reasons[0])
		case c.Status == v1.ConditionFalse:
			record(reasons[1])
		}
	}
	if !made && was.Spec.Unschedulable != now.Spec.Unschedulable {
		if now.Spec.Unschedulable {
			record("NodeNotSchedulable")
		} else {
			record("NodeSchedulable")
		}
	}
	if id := was.Status.NodeInfo.BootID; id != "" && id != now.Status.NodeInfo.BootID {
		text := fmt.Sprintf("Node %s has been rebooted, boot id: %s", now.Name, now.Status.NodeInfo.BootID)
		out = append(out, messages.NodeEvent(now.Name, v1.EventTypeWarning, "Rebooted", text, at))
	}
	return out
}
