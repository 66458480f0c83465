package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// checkFeatures says what the runtime can do. What it cannot is no failure: pods that need it are refused, or wait, with a
// reason.
func checkFeatures(ctx context.Context, m *Machine) []Finding {
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	var can, cannot []string
	note := func(has bool, what, otherwise string) {
		if has {
			can = append(can, what)
		} else {
			cannot = append(cannot, what+" ("+otherwise+")")
		}
	}
	var handlers []string
	var recursive, users bool
	for _, h := range facts.status.GetRuntimeHandlers() {
		if h.GetName() == "" { // the default one
			recursive, users = h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
			continue
		}
		handlers = append(handlers, h.GetName())
	}
	slices.Sort(handlers)
	note(facts.events, "events", "changes are found by polling")
	note(facts.driver != "", "telling its cgroup driver", "cgroupDriver of the configuration has to be the runtime's")
	note(recursive, "recursive read-only mounts", "pods that ask for them wait")
	note(users, "user namespaces", "pods with hostUsers: false cannot run")
	note(facts.status.GetFeatures().GetSupplementalGroupsPolicy(), "supplementalGroupsPolicy", "pods that ask for Strict wait")
	text := strings.Join(can, ", ")
	if len(handlers) > 0 {
		text += "; handlers: " + strings.Join(handlers, ", ")
	}
	text = strings.TrimPrefix(text, "; ")
	if len(cannot) > 0 {
		text = strings.TrimPrefix(fmt.Sprintf("%s; not: %s", text, strings.Join(cannot, ", ")), "; ")
	}
	if facts.driver == "" { // the only one by which ordinary pods can come to grief
		return warn("see that cgroupDriver is what the runtime is configured for (SystemdCgroup of containerd, cgroup_manager "+
			"of CRI-O); newer runtimes tell (containerd 2.0)", "%s", text)
	}
	return ok("%s", text)
}
