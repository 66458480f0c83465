package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/playlet-dev/playlet/actors/resources"
)

// leastSettings are those of which too little makes pods, or the agent, fail under load.
var leastSettings = []struct {
	name  string
	least int64
	what  string
}{
	{"fs.inotify.max_user_instances", 128, "watches of files fail (too many open files)"},
	{"fs.inotify.max_user_watches", 8192, "watches of files fail (no space left on device)"},
	{"kernel.pid_max", 32768, "pods with many processes fail to fork"},
}

// checkKernel looks at settings of the kernel.
func checkKernel(_ context.Context, m *Machine) []Finding {
	var found []Finding
	var differ, set []string
	settings, err := resources.DifferingSysctls(m.Proc)
	if err != nil {
		found = warn("", "%v", err)
	}
	for _, s := range settings {
		differ = append(differ, fmt.Sprintf("%s is %d", s.Name, s.Is))
		set = append(set, fmt.Sprintf("%s=%d", s.Name, s.Want))
	}
	if err := m.Node.CheckSysctls(differ); err != nil {
		found = append(found, fail("sysctl -w "+strings.Join(set, " ")+"; the agent does not start without", "%v", err)...)
	}
	for _, s := range leastSettings {
		if is, err := m.sysctl(s.name); err == nil && is < s.least {
			found = append(found, warn(fmt.Sprintf("sysctl -w %s=%d, or more", s.name, s.least), "%s is %d: %s", s.name, is,
				s.what)...)
		}
	}
	users, err := m.sysctl("user.max_user_namespaces")
	if err != nil || users == 0 {
		found = append(found, warn("sysctl -w user.max_user_namespaces=65536, where pods are to have them",
			"no user namespaces: pods with hostUsers: false cannot run")...)
	}
	if len(found) > 0 {
		return found
	}
	if len(differ) > 0 {
		return ok("user namespaces; as the system has it, which the agent changes when it starts: %s", strings.Join(differ, ", "))
	}
	return ok("user namespaces; as Kubernetes wants it")
}
