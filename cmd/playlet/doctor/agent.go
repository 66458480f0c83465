package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// checkAgent looks for who else would manage the same containers.
func checkAgent(ctx context.Context, m *Machine) []Finding {
	var found []Finding
	for _, p := range m.processes() {
		if p.name != "kubelet" {
			continue
		}
		if m.sameMounts(p) {
			found = append(found, fail("stop one of both (systemctl disable --now kubelet, or playlet install --replace-kubelet)",
				"a kubelet runs here, process %d: both would manage the same containers", p.pid)...)
		} else {
			found = append(found, warn("see that it does not use the same container runtime",
				"a kubelet runs in a container, process %d", p.pid)...)
		}
	}
	lock := filepath.Join(m.Node.RootDir, "playlet", "lock")
	holder, held := m.holder(lock)
	version, err := m.Agent(ctx)
	switch {
	case held && err != nil:
		found = append(found, warn(
			"see its log (journalctl -u playlet); --admin-socket says where it is asked",
			"an agent runs here, process %d, and does not answer at %s: %v", holder.pid, m.Node.AdminSocket, err)...)
	case held:
		found = append(found, ok("playlet %s runs here, process %d", version, holder.pid)...)
	case err == nil:
		found = append(found, warn("give each agent its own --root-dir, --admin-socket and runtime",
			"playlet %s answers at %s, with another root folder", version, m.Node.AdminSocket)...)
	case len(found) == 0:
		found = ok("none runs")
	}
	if file := m.Node.LockFile; file != "" {
		if p, taken := m.holder(file); taken && p != holder {
			found = append(found, warn("the agent waits until it is let go", "--lock-file %s is held by %s", file, p)...)
		}
	}
	return found
}

func (p process) String() string {
	if p.name == "" {
		return fmt.Sprintf("process %d", p.pid)
	}
	return fmt.Sprintf("%s (process %d)", p.name, p.pid)
}

// sameMounts says whether a process lives in our mount namespace: one in a container does not.
func (m *Machine) sameMounts(p process) bool {
	theirs, err1 := os.Readlink(m.pid(p, "ns", "mnt"))
	ours, err2 := os.Readlink(filepath.Join(m.Proc, "self", "ns", "mnt"))
	return err1 != nil || err2 != nil || theirs == ours
}
