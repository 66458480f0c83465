package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// GatesClosed says which of the pod's readiness gates are not open, and why (KEP-580); empty where all are. The conditions
// are others' to set, and come with the pod's object.
func GatesClosed(pod *v1.Pod) string {
	var closed []string
	for _, g := range pod.Spec.ReadinessGates {
		is := v1.ConditionStatus("")
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == g.ConditionType {
				is = pod.Status.Conditions[i].Status
			}
		}
		switch is {
		case v1.ConditionTrue:
		case "":
			closed = append(closed, fmt.Sprintf("readiness gate %q: nobody has set this condition", g.ConditionType))
		default:
			closed = append(closed, fmt.Sprintf("readiness gate %q: the condition is %s", g.ConditionType, is))
		}
	}
	return strings.Join(closed, ", ")
}
