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
	refused, replaced := agent.CheckCPUs(m.Node)
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
			"the checkpoint of exclusive CPUs cannot be read: %v", replaced)
	case m.Node.Kubelet.CPUManagerPolicy == resources.StaticCPUs:
		return ok("the policy static, and a checkpoint that fits it")
	}
	return ok("no exclusive CPUs")
}
