package registration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/messages"
)

// runtimeGrace is how long a ready runtime may be away before the node is not ready: its restart is no reason to take pods out
// of Services. The value is the kubelet's.
const runtimeGrace = 30 * time.Second

// pressureTypes lists the pressure conditions in the kubelet's order; Ready follows them.
var pressureTypes = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// noPressure holds the kubelet's reasons and messages in the absence of pressure.
var noPressure = map[v1.NodeConditionType]messages.Pressure{
	v1.NodeMemoryPressure: {Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
	v1.NodeDiskPressure:   {Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
	v1.NodePIDPressure:    {Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
}

func condition(node *v1.Node, kind v1.NodeConditionType) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// notReady returns the reason why a Node's condition Ready is not True; empty if it is, or without a Node.
func notReady(node *v1.Node) string {
	if node == nil {
		return ""
	}
	switch ready := condition(node, v1.NodeReady); {
	case ready == nil:
		return "the Node has no condition Ready"
	case ready.Status == v1.ConditionTrue:
		return ""
	default:
		return ready.Reason + ": " + ready.Message
	}
}

// setCondition replaces the condition in place or appends it. Its transition time changes only with its status, also when an
// earlier agent or the node controller set the condition.
func setCondition(node *v1.Node, c v1.NodeCondition, now time.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	if was := condition(node, c.Type); was != nil {
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		*was = c
		return
	}
	node.Status.Conditions = append(node.Status.Conditions, c)
}

// setPressures sets the three pressure conditions. A condition without a measurement stays unchanged.
func setPressures(node *v1.Node, pressures []messages.Pressure, now time.Time) {
	for _, kind := range pressureTypes {
		i := slices.IndexFunc(pressures, func(p messages.Pressure) bool { return p.Type == kind })
		p := noPressure[kind]
		switch was := condition(node, kind); {
		case i >= 0:
			p = pressures[i]
		case was != nil && was.Status != v1.ConditionUnknown:
			was.LastHeartbeatTime = metav1.NewTime(now)
			continue
		}
		c := v1.NodeCondition{Type: kind, Status: v1.ConditionFalse, Reason: p.Reason, Message: p.Message}
		if p.Under {
			c.Status = v1.ConditionTrue
		}
		setCondition(node, c, now)
	}
}

// setReady sets the condition Ready.
func setReady(node *v1.Node, problems []string, now time.Time) {
	c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status"}
	if len(problems) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", strings.Join(problems, "; ")
	}
	setCondition(node, c, now)
}

// unready lists the problems that keep the node from being ready. was reports whether the API server's Node is ready.
func (f facts) unready(was bool, began, now time.Time) []string {
	var out []string
	r := f.runtime
	switch {
	case r.Ready:
		if !r.NetworkReady {
			out = append(out, f.networkProblem())
		}
	case r.Since.IsZero() && was && now.Sub(began) < runtimeGrace:
		// The agent has just started: the condition stays.
	case r.Since.IsZero():
		out = append(out, "the container runtime was not heard yet")
	case was && now.Sub(r.Since) < runtimeGrace:
	default:
		out = append(out, "container runtime not ready: "+r.Reason)
	}
	if f.machineErr != nil && (f.machine.CPUs == 0 || f.machine.Memory == 0) {
		out = append(out, "the machine cannot be read: "+f.machineErr.Error())
	}
	if f.shutdown {
		out = append(out, messages.NodeShutdownCondition)
	}
	return out
}

func (f facts) networkProblem() string {
	text := "container runtime network not ready"
	if f.runtime.NetworkReason != "" {
		text += ": " + f.runtime.NetworkReason
	}
	if f.network != "" {
		text += ": " + f.network
	}
	return text
}

// transitions are the kubelet's Event reasons for conditions that became True, and that became False.
var transitions = map[v1.NodeConditionType][2]string{
	v1.NodeReady:          {"NodeReady", "NodeNotReady"},
	v1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	v1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	v1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
}

// nodeEvents returns the Events about changes of the Node. was is nil for a new Node, for which the kubelet records pressures
// alone.
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
		reasons, known := transitions[c.Type]
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
