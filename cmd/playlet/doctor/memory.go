package doctor

import (
	"context"
	"errors"
	"io/fs"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/cmd/playlet/agent"
)

// checkNUMA finds the reasons for which an agent does not start with the configuration and the checkpoint of the memory
// manager, or with the policy of the topology manager.
func checkNUMA(_ context.Context, m *Machine) []Finding {
	refused, replaced := agent.CheckMemory(m.Node)
	file, ofFile := errors.AsType[*resources.CheckpointError](refused)
	switch {
	case errors.Is(refused, fs.ErrPermission), errors.Is(replaced, fs.ErrPermission):
		return skip("%v: only root can read it", errors.Join(refused, replaced))
	case ofFile:
		return fail(file.Remedy, "%s: %v", file.Path, file.Err)
	case refused != nil:
		return fail("correct the configuration: the agent does not start with it", "%v", refused)
	case replaced != nil:
		return warn("nothing: the agent replaces the file when it starts, and no container depends on it",
			"the checkpoint of memory by NUMA node cannot be read: %v", replaced)
	case m.Node.Kubelet.MemoryManagerPolicy == resources.StaticMemory:
		return ok("the memory manager's policy Static, and a checkpoint that fits it")
	}
	return ok("no memory by NUMA node")
}
