package doctor

import (
	"context"
	"errors"
	"io/fs"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/cmd/playlet/agent"
)

// checkCPUs finds the reasons for which an agent does not start with the CPU manager's configuration and checkpoint.
func checkCPUs(_ context.Context, m *Machine) []Finding {
	refused, replaced := agent.CheckCPUs(m.Node, m.groups())
	switch found := checkpoint(refused, replaced, "exclusive CPUs"); {
	case found != nil:
		return found
	case m.Node.Kubelet.CPUManagerPolicy == resources.StaticCPUs:
		return ok("the policy static, and a checkpoint that fits it")
	}
	return ok("no exclusive CPUs")
}

// checkNUMA finds the reasons for which an agent does not start with the configuration and the checkpoint of the memory
// manager, or with the policy of the topology manager.
func checkNUMA(_ context.Context, m *Machine) []Finding {
	refused, replaced := agent.CheckMemory(m.Node, m.groups())
	switch found := checkpoint(refused, replaced, "memory by NUMA node"); {
	case found != nil:
		return found
	case m.Node.Kubelet.MemoryManagerPolicy == resources.StaticMemory:
		return ok("the memory manager's policy Static, and a checkpoint that fits it")
	}
	return ok("no memory by NUMA node")
}

// checkpoint returns the findings of a resource manager's check; nil: the agent starts and keeps the checkpoint.
func checkpoint(refused, replaced error, about string) []Finding {
	file, ofFile := errors.AsType[*resources.CheckpointError](refused)
	switch {
	case errors.Is(refused, fs.ErrPermission), errors.Is(replaced, fs.ErrPermission):
		return skip("%v: only root can read it", errors.Join(refused, replaced))
	case ofFile:
		return fail(file.Remedy, "%s: %v", file.Path, file.Err)
	case refused != nil:
		return fail("correct the configuration: the agent does not start with it", "%v", refused)
	case replaced != nil:
		what := "cannot be read"
		if _, stale := errors.AsType[*resources.StaleCheckpointError](replaced); stale {
			what = "does not fit"
		}
		return warn("nothing: the agent replaces the file when it starts, and no container depends on it",
			"the checkpoint of %s %s: %v", about, what, replaced)
	}
	return nil
}
