package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "files of pods, whoever owns them", Fail},
	{unix.CAP_CHOWN, "CAP_CHOWN", "fsGroup of volumes", Fail},
	{unix.CAP_FOWNER, "CAP_FOWNER", "modes of files in volumes", Fail},
	{unix.CAP_FSETID, "CAP_FSETID", "set-group-ID folders of volumes with fsGroup", Warn},
	{unix.CAP_KILL, "CAP_KILL", "processes left in a pod's cgroup", Fail},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "who holds a port or a lock, in this command", Warn},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "the trial of the network, in this command", Warn},
	{unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE", "a lower oom_score_adj, for the runtime too (containerd needs " +
		"restrict_oom_score_adj = true without)", Warn},
}

// checkCapabilities says what this process may not do. The agent may be started with more, or less.
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
			do = "it is taken away for good here (the bounding set): give it to the container or unit in which this runs " +
				"(CapabilityBoundingSet=)"
		}
		found = append(found, Finding{Result: c.result, Seen: fmt.Sprintf("%s is missing: %s", c.name, c.forWhat), Do: do})
	}
	if len(found) == 0 {
		return ok("all that are needed")
	}
	return found
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
