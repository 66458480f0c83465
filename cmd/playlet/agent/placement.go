package agent

import (
	"log/slog"
	"math"

	cadvisor "github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Feature gates of exclusive CPUs and memory.
const (
	unlimitedExclusiveCPUs = "DisableCPUQuotaWithExclusiveCPUs"
	resizeExclusiveCPUs    = "InPlacePodVerticalScalingExclusiveCPUs"
	resizeExclusiveMemory  = "InPlacePodVerticalScalingExclusiveMemory"
)

// optionGates are the gates of the policy's options, by their stage.
var optionGates = map[string]string{"Alpha": "CPUManagerPolicyAlphaOptions", "Beta": "CPUManagerPolicyBetaOptions"}

// readNodes reads the NUMA nodes of this machine, with their CPUs and memory. A variable: tests replace it.
var readNodes = func(*config.Node) ([]model.Node, error) {
	nodes, _, err := cadvisor.GetTopology(sysfs.NewRealSysFs())
	return nodes, err
}

// placement is where containers may run: their CPUs and NUMA nodes.
type placement struct {
	cpus      *resources.CPUs
	memory    *resources.Memory
	alignment resources.AlignmentPolicy
}

// openPlacement reads the CPUs that containers have to themselves, and their memory by NUMA node. Call it with the lock of the
// root folder. An error refuses a configuration that does not fit the machine or the last agent's checkpoints.
func openPlacement(node *config.Node, log *slog.Logger) (p placement, err error) {
	log = log.With(podlog.ActorKey, messages.Resources.String())
	k := node.Kubelet
	if p.alignment, err = resources.NewAlignment(k.TopologyManagerPolicy, k.TopologyManagerPolicyOptions,
		nodesOf(node)); err != nil {
		return p, err
	}
	memory, err := memoryConfig(node, resources.Host{})
	if err != nil {
		return p, err
	}
	c, err := cpuConfig(node, resources.Host{})
	if err != nil {
		return p, err
	}
	memory.Log, c.Log = log, log
	if p.cpus, err = resources.OpenCPUs(c); err != nil {
		return p, err
	}
	if p.memory, err = resources.OpenMemory(memory); err != nil {
		p.cpus.Close()
	}
	return p, err
}

// pin returns where a container runs.
func (p placement) pin(uid, container string) translate.Pin {
	pin := p.cpus.Pin(uid, container)
	pin.Mems = p.memory.Nodes(uid, container)
	return pin
}

func nodesOf(node *config.Node) func() ([]model.Node, error) {
	return func() ([]model.Node, error) { return readNodes(node) }
}

// CheckMemory reports whether the agent would refuse to start with its configuration of NUMA nodes, or replace the checkpoint of
// their memory. groups shows whether pods run; nil: unknown.
func CheckMemory(node *config.Node, groups resources.Groups) (refused, replaced error) {
	k := node.Kubelet
	if _, err := resources.NewAlignment(k.TopologyManagerPolicy, k.TopologyManagerPolicyOptions,
		nodesOf(node)); err != nil {
		return err, nil
	}
	c, err := memoryConfig(node, groups)
	if err != nil {
		return err, nil
	}
	return resources.CheckMemory(c)
}

func memoryConfig(node *config.Node, groups resources.Groups) (resources.MemoryConfig, error) {
	capacity, _, err := memoryCapacity()
	return resources.MemoryConfig{
		RootDir: node.RootDir, Policy: node.Kubelet.MemoryManagerPolicy, Reserved: node.Kubelet.ReservedMemory,
		Withheld: sizes(node).Reserved(v1.ResourceMemory, *resource.NewQuantity(capacity, resource.BinarySI)),
		Nodes:    nodesOf(node), Idle: idle(node, groups),
	}, err
}

// idle returns the function that reports whether no container runs; nil: cgroups do not show that.
func idle(node *config.Node, groups resources.Groups) func() bool {
	if !ptr.Deref(node.Kubelet.CgroupsPerQOS, true) || groups == nil {
		return nil
	}
	return resources.Tree{Groups: groups, Root: resources.ParseName(node.Kubelet.CgroupRoot)}.Idle
}

// CheckCPUs reports whether the agent would refuse to start with its configuration of CPUs, or replace their checkpoint. groups
// shows whether pods run; nil: unknown.
func CheckCPUs(node *config.Node, groups resources.Groups) (refused, replaced error) {
	c, err := cpuConfig(node, groups)
	if err != nil {
		return err, nil
	}
	return resources.CheckCPUs(c)
}

func cpuConfig(node *config.Node, groups resources.Groups) (resources.CPUConfig, error) {
	k := node.Kubelet
	reservedCPUs, err := cpuset.Parse(k.ReservedSystemCPUs)
	if err != nil {
		return resources.CPUConfig{}, err
	}
	cpu := reserved(k.KubeReserved, k.SystemReserved)[v1.ResourceCPU]
	return resources.CPUConfig{
		RootDir: node.RootDir, Policy: k.CPUManagerPolicy, Options: k.CPUManagerPolicyOptions,
		Enabled: func(stage string) bool { return node.FeatureEnabled(optionGates[stage]) },
		Topology: func() (resources.Topology, error) {
			nodes, err := readNodes(node)
			if err != nil {
				return nil, err
			}
			return resources.Discover(&model.MachineInfo{Topology: nodes})
		},
		Reserved: reservedCPUs, Count: int(math.Ceil(float64(cpu.MilliValue()) / 1000)),
		Limited: !node.FeatureEnabled(unlimitedExclusiveCPUs), Idle: idle(node, groups),
	}, nil
}
