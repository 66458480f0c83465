package doctor

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkConditions says what the runtime thinks of itself. A condition that the CRI does not know is a runtime's own.
func checkConditions(ctx context.Context, m *Machine) []Finding {
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	var found []Finding
	var good []string
	for _, c := range facts.status.GetStatus().GetConditions() {
		if c.GetStatus() {
			good = append(good, c.GetType())
			continue
		}
		why := c.GetType() + " is false"
		for _, part := range []string{c.GetReason(), c.GetMessage()} {
			if part != "" {
				why += ": " + part
			}
		}
		switch c.GetType() {
		case runtimeapi.RuntimeReady:
			_, journal := unit(m.Node.Kubelet.ContainerRuntimeEndpoint)
			found = append(found, fail(journal, "%s", why)...)
		case runtimeapi.NetworkReady:
			found = append(found,
				fail("pods of the host's network run all the same; for the others see what is found of network below",
					"%s", why)...)
		default:
			found = append(found, warn("nothing now; look at it before the runtime is upgraded", "%s", why)...)
		}
	}
	if len(good) > 0 {
		found = append(found, ok("%s", strings.Join(good, ", "))...)
	}
	return found
}
