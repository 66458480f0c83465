package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/resources"
)

// leastSettings are settings with minimum values; below them pods, or the agent, fail under load.
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
		found = warn("run as root, and mount /proc", "%v", err)
	}
	for _, s := range settings {
		differ = append(differ, fmt.Sprintf("%s is %d", s.Name, s.Is))
		set = append(set, fmt.Sprintf("%s=%d", s.Name, s.Want))
	}
	if err := m.Node.CheckSysctls(differ); err != nil {
		found = append(found, fail("sysctl -w "+strings.Join(set, " ")+"; the agent does not start otherwise", "%v", err)...)
	}
	for _, s := range leastSettings {
		if is, err := m.sysctl(s.name); err == nil && is < s.least {
			found = append(found, warn(fmt.Sprintf("sysctl -w %s=%d, or more", s.name, s.least), "%s is %d: %s", s.name, is,
				s.what)...)
		}
	}
	as := "kernel settings as Kubernetes expects"
	if len(differ) > 0 {
		as = "the agent changes these kernel settings when it starts: " + strings.Join(differ, ", ")
	}
	return or(found, ok("%s", as))
}

const (
	// watched is how long the clocks are compared.
	watched = 500 * time.Millisecond
	// jump is by how much they may differ then: slewing changes half a millisecond in a second (adjtime(3)).
	jump = 100 * time.Millisecond
)

// checkClock reports whether the time is right, and synchronized.
func checkClock(ctx context.Context, m *Machine) []Finding {
	const sync = "run a time daemon (systemctl enable --now systemd-timesyncd, or chrony)"
	wall, monotonic := m.System.Clocks()
	// A day is tolerated, since the clock of the build machine may be ahead.
	if !m.Built.IsZero() && wall.Before(m.Built.Add(-24*time.Hour)) {
		return fail(sync+"; certificates are not yet valid at that time", "the clock shows %s, and this program was built at %s",
			wall.UTC().Format(time.RFC3339), m.Built.UTC().Format(time.RFC3339))
	}
	select {
	case <-time.After(watched):
	case <-ctx.Done():
		return skip("%v", context.Cause(ctx))
	}
	wallNow, monotonicNow := m.System.Clocks()
	if off := wallNow.Sub(wall) - (monotonicNow - monotonic); off > jump || off < -jump {
		return warn("check that only one daemon sets the clock, and that it slews it",
			"the clock jumped by %s during the check", off.Round(time.Millisecond))
	}
	synchronised, err := m.System.Synchronised()
	switch {
	case err != nil:
		return skip("whether the clock is synchronised cannot be read: %v", err)
	case !synchronised:
		return warn(sync, "it is not synchronised, according to the kernel (adjtimex)")
	}
	return ok("synchronised, %s", wallNow.UTC().Format(time.RFC3339))
}

// checkOpenat2 reports whether openat2 can open paths without leaving a folder; the safety of volumes depends on it.
func checkOpenat2(_ context.Context, m *Machine) []Finding {
	err := m.System.Openat2(existing(m.Node.RootDir))
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fail("use Linux 5.6 or newer", "this kernel has no openat2(2): paths within volumes cannot be opened safely")
	case errors.Is(err, unix.EPERM):
		return fail("allow it in the seccomp filter that applies here", "openat2(2) is not permitted")
	case err != nil:
		return fail("check that --root-dir is readable", "%v", err)
	}
	return ok("available")
}

// capability is one that the agent needs.
type capability struct {
	number  int
	name    string
	forWhat string
	result  Result // of its being missing
}

// needed are the agent's (capabilities(7)). Programs that it starts may need others.
var needed = []capability{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "mounts of volumes, namespaces", Fail},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "files of pods, regardless of their owner", Fail},
	{unix.CAP_CHOWN, "CAP_CHOWN", "fsGroup of volumes", Fail},
	{unix.CAP_FOWNER, "CAP_FOWNER", "modes of files in volumes", Fail},
	{unix.CAP_FSETID, "CAP_FSETID", "set-group-ID folders of volumes with fsGroup", Warn},
	{unix.CAP_KILL, "CAP_KILL", "processes left in a pod's cgroup", Fail},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "finding who holds a port or a lock, in this command", Warn},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "testing the network, in this command", Warn},
	{unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "a lower oom_score_adj, for the runtime too (containerd needs " +
		"restrict_oom_score_adj = true without it)", Warn},
}

// checkCapabilities reports the missing capabilities of this process. The agent may be started with more, or less.
func checkCapabilities(_ context.Context, m *Machine) []Finding {
	sets, err := m.capabilities()
	if err != nil {
		return skip("%v", err)
	}
	effective, bounding := sets["CapEff"], sets["CapBnd"]
	var found []Finding
	for _, c := range needed {
		bit := uint64(1) << c.number
		if effective&bit != 0 {
			continue
		}
		do := "run as root"
		if bounding&bit == 0 {
			do = "the bounding set lacks it: grant it to the container or unit that this runs in " +
				"(CapabilityBoundingSet=)"
		}
		found = append(found, Finding{Result: c.result, Seen: fmt.Sprintf("%s is missing: %s", c.name, c.forWhat), Do: do})
	}
	return or(found, ok("all needed ones"))
}

func (m *Machine) capabilities() (map[string]uint64, error) {
	text, err := os.ReadFile(filepath.Join(m.Proc, "self/status"))
	if err != nil {
		return nil, err
	}
	sets := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.HasPrefix(name, "Cap") {
			continue
		}
		if sets[name], err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
			return nil, err
		}
	}
	return sets, nil
}
