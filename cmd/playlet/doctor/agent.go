package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"

	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
)

// RunningAgent is the agent that runs.
type RunningAgent struct{ Version, RootDir string }

// agent returns the process of the agent: the one with the configured root folder, or the one behind the socket that the user
// named.
func (m *Machine) agent(ctx context.Context) (process, bool) {
	holder, held := m.holder(lockIn(m.Node.RootDir))
	if held || !m.Chosen {
		return holder, held
	}
	running, err := m.Agent(ctx)
	if err != nil || running.RootDir == "" {
		return process{}, false
	}
	return m.holder(lockIn(running.RootDir))
}

func lockIn(rootDir string) string { return filepath.Join(rootDir, "playlet", "lock") }

// checkAgent looks for other agents and kubelets that would manage the same containers.
func checkAgent(ctx context.Context, m *Machine) []Finding {
	var found []Finding
	holder, held := m.agent(ctx)
	for _, p := range m.processes() {
		if p.name != "kubelet" || held && p.PID == holder.PID {
			continue
		}
		if m.sameMounts(p) {
			found = append(found, fail("stop one of the two "+
				"(systemctl disable --now kubelet, or playlet install --replace-kubelet)",
				"a kubelet runs here, process %d: both would manage the same containers", p.PID)...)
		} else {
			found = append(found, warn("check that it does not use the same container runtime",
				"a kubelet runs in a container, process %d", p.PID)...)
		}
	}
	except := []int{os.Getpid()}
	if held {
		except = append(except, holder.PID)
	}
	if k := locks.FindEmbedded(m.Node, m.Proc, except...); k != nil && k.Name != "kubelet" {
		found = append(found, fail(k.Remedy(), "%s", k)...)
	}
	running, err := m.Agent(ctx)
	switch {
	case held && err != nil:
		found = append(found, warn(
			"check its log (journalctl -u playlet); --admin-socket or PLAYLET_SOCKET names its socket",
			"an agent runs here, process %d, and does not answer at %s: %v", holder.PID, m.Socket, err)...)
	case held:
		found = append(found, ok("playlet %s runs here, process %d", running.Version, holder.PID)...)
	case err == nil:
		found = append(found, warn("give each agent its own --root-dir, --admin-socket and runtime",
			"playlet %s answers at %s, with another root folder", running.Version, m.Socket)...)
	case len(found) == 0:
		found = ok("none runs")
	}
	if file := m.Node.LockFile; file != "" {
		if p, taken := m.holder(file); taken && p != holder {
			found = append(found, warn("the agent waits until it is released", "--lock-file %s is held by %s", file, p)...)
		}
	}
	return found
}

func (p process) String() string {
	if p.name == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("%s (process %d)", p.name, p.PID)
}

// sameMounts reports whether a process is in this process's mount namespace. A process in a container is not.
func (m *Machine) sameMounts(p process) bool {
	theirs, err1 := os.Readlink(filepath.Join(m.Proc, strconv.Itoa(p.PID), "ns", "mnt"))
	ours, err2 := os.Readlink(filepath.Join(m.Proc, "self", "ns", "mnt"))
	return err1 != nil || err2 != nil || theirs == ours
}

// process is one of the machine's.
type process struct {
	procfs.Proc
	name string
}

// processes are all that can be seen, and ours not.
func (m *Machine) processes() (out []process) {
	proc, err := procfs.NewFS(m.Proc)
	if err != nil {
		return nil
	}
	all, _ := proc.AllProcs() // those that can be seen
	sort.Sort(all)
	for _, p := range all {
		if name, err := p.Comm(); err == nil && p.PID != os.Getpid() { // gone meanwhile otherwise
			out = append(out, process{p, name})
		}
	}
	return out
}

// opens reports whether a process has an open descriptor that links to this.
func (p process) opens(link string) bool {
	targets, err := p.FileDescriptorTargets()
	return err == nil && slices.Contains(targets, link)
}

// holder finds the process that holds the flock(2) on a file, by /proc/locks: to try the lock would be to hold it.
func (m *Machine) holder(path string) (process, bool) {
	path, err := filepath.EvalSymlinks(path) // as descriptors have it
	if err != nil {
		return process{}, false
	}
	info, err := os.Stat(path)
	if err != nil {
		return process{}, false
	}
	stat, isStat := info.Sys().(*syscall.Stat_t)
	text, err := os.ReadFile(filepath.Join(m.Proc, "locks"))
	proc, badProc := procfs.NewFS(m.Proc)
	if err != nil || badProc != nil || !isStat {
		return process{}, false
	}
	inode := ":" + strconv.FormatUint(stat.Ino, 10)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		pid, _ := strconv.Atoi(f[4]) // -1 of a lock that no process has alone
		p, err := proc.Proc(pid)
		if err != nil {
			continue
		}
		name, _ := p.Comm()
		// The inode's number may belong to another file system; the process's open files show that.
		if held := (process{p, name}); held.opens(path) {
			return held, true
		}
	}
	return process{}, false
}
