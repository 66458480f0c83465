package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// kernelSettings are those that the kubelet sets, or with protectKernelDefaults asks for (kubelet's documentation of that
// field).
var kernelSettings = []struct {
	name string
	want int64
}{
	{"vm.overcommit_memory", 1}, {"vm.panic_on_oom", 0}, {"kernel.panic", 10}, {"kernel.panic_on_oops", 1},
	{"kernel.keys.root_maxkeys", 1000000}, {"kernel.keys.root_maxbytes", 25000000},
}

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
	for _, s := range kernelSettings {
		is, err := m.sysctl(s.name)
		if errors.Is(err, fs.ErrNotExist) { // a kernel without
			continue
		}
		if err != nil {
			found = append(found, warn("", "%s: %v", s.name, err)...)
			continue
		}
		if is != s.want {
			differ = append(differ, fmt.Sprintf("%s is %d", s.name, is))
			set = append(set, fmt.Sprintf("%s=%d", s.name, s.want))
		}
	}
	if len(differ) > 0 && m.Node.Kubelet.ProtectKernelDefaults {
		found = append(found, warn("sysctl -w "+strings.Join(set, " ")+"; a kubelet would not start with protectKernelDefaults",
			"%s", strings.Join(differ, ", "))...)
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
		return ok("user namespaces; as the system has it, which a kubelet would change: %s", strings.Join(differ, ", "))
	}
	return ok("user namespaces; as Kubernetes wants it")
}
