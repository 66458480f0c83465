package agent

import (
	"log/slog"
	"math"

	cadvisor "github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
)

// Feature gates of exclusive CPUs.
const (
	unlimitedExclusiveCPUs = "DisableCPUQuotaWithExclusiveCPUs"
	resizeExclusiveCPUs    = "InPlacePodVerticalScalingExclusiveCPUs"
)

// optionGates are the gates of the policy's options, by their stage.
var optionGates = map[string]string{"Alpha": "CPUManagerPolicyAlphaOptions", "Beta": "CPUManagerPolicyBetaOptions"}

// readTopology reads the place of each CPU of this machine. A variable: tests replace it.
var readTopology = func() (resources.Topology, error) {
	nodes, _, err := cadvisor.GetTopology(sysfs.NewRealSysFs())
	if err != nil {
		return nil, err
	}
	return resources.Discover(&model.MachineInfo{Topology: nodes})
}

// openCPUs reads the CPUs that containers have to themselves. Call it with the lock of the root folder. An error refuses a
// configuration that does not fit the machine or the last agent's checkpoint.
func openCPUs(node *config.Node, log *slog.Logger) (*resources.CPUs, error) {
	c, err := cpuConfig(node)
	if err != nil {
		return nil, err
	}
	c.Log = log.With(podlog.ActorKey, messages.Resources.String())
	return resources.OpenCPUs(c)
}

// CheckCPUs reports whether the agent would refuse to start with its configuration of CPUs, or replace their checkpoint.
func CheckCPUs(node *config.Node) (refused, replaced error) {
	c, err := cpuConfig(node)
	if err != nil {
		return err, nil
	}
	return resources.CheckCPUs(c)
}

func cpuConfig(node *config.Node) (resources.CPUConfig, error) {
	k := node.Kubelet
	reservedCPUs, err := cpuset.Parse(k.ReservedSystemCPUs)
	if err != nil {
		return resources.CPUConfig{}, err
	}
	cpu := reserved(k.KubeReserved, k.SystemReserved)[v1.ResourceCPU]
	return resources.CPUConfig{
		RootDir: node.RootDir, Policy: k.CPUManagerPolicy, Options: k.CPUManagerPolicyOptions,
		Enabled:  func(stage string) bool { return node.FeatureEnabled(optionGates[stage]) },
		Topology: readTopology, Reserved: reservedCPUs, Count: int(math.Ceil(float64(cpu.MilliValue()) / 1000)),
		Limited: !node.FeatureEnabled(unlimitedExclusiveCPUs),
	}, nil
}
