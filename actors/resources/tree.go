package resources

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/cpus"
	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/internal/dra"
	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/numamemory"
	"github.com/playlet-dev/playlet/actors/internal/pluginwatch"
	"github.com/playlet-dev/playlet/actors/internal/statefile"
	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// Types for the command, which reports the desired cgroups; cmd may not import actors/internal.
type (
	// Tree is the kubelet's tree of cgroups.
	Tree = cgroups.Tree
	// Groups are the cgroups of a machine.
	Groups = cgroups.Groups
	// Name is the path of a cgroup in its tree.
	Name = cgroups.Name
	// Host is the real machine.
	Host = cgroups.Host
	// Settings determine the values of cgroups.
	Settings = cgroups.Settings
	// Capacity is the machine's capacity.
	Capacity = cgroups.Capacity
	// Reservation is the reservation for a foreign cgroup.
	Reservation = cgroups.Reservation
)

// Types about exclusive CPUs.
type (
	// CPUs are the exclusive CPUs of containers.
	CPUs = cpus.Manager
	// CPUConfig configures them.
	CPUConfig = cpus.Config
	// Topology is the place of each CPU of the machine.
	Topology = cpus.Topology
)

// OpenCPUs returns the process's exclusive CPUs; see cpus.Open.
var OpenCPUs = cpus.Open

// CheckCPUs reports in advance whether OpenCPUs refuses to start; see cpus.Check.
var CheckCPUs = cpus.Check

// CheckpointError is the refusal to start with the checkpoint of exclusive CPUs or memory.
type CheckpointError = statefile.Error

// StaleCheckpointError is the reason that such a checkpoint is replaced.
type StaleCheckpointError = statefile.StaleError

// Types about memory from chosen NUMA nodes.
type (
	// Memory is the memory of containers by NUMA node.
	Memory = numamemory.Manager
	// MemoryConfig configures it.
	MemoryConfig = numamemory.Config
	// AlignmentPolicy is the policy of the topology manager.
	AlignmentPolicy = topology.Policy
)

// OpenMemory returns the process's memory by NUMA node; see numamemory.Open.
var OpenMemory = numamemory.Open

// CheckMemory reports in advance whether OpenMemory refuses to start; see numamemory.Check.
var CheckMemory = numamemory.Check

// StaticMemory is the policy with which containers have memory from chosen NUMA nodes [memoryManagerPolicy].
const StaticMemory = numamemory.PolicyStatic

// NewAlignment returns the topology manager's policy; see topology.New.
var NewAlignment = topology.New

// Discover returns the topology of a machine; see cpus.Discover.
var Discover = cpus.Discover

// StaticCPUs is the policy with which containers can have exclusive CPUs [cpuManagerPolicy].
const StaticCPUs = cpus.PolicyStatic

// NewDevices returns the process's device plugins; see devices.New.
var NewDevices = devices.New

// Types about dynamic resource allocation.
type (
	// Claims are the prepared ResourceClaims of pods.
	Claims = dra.Manager
	// ClaimOptions configure them.
	ClaimOptions = dra.Options
)

// NewClaims returns the process's ResourceClaims; see dra.New.
var NewClaims = dra.New

// Types about plugins that register by a socket.
type (
	// PluginWatcher watches for them.
	PluginWatcher = pluginwatch.Watcher
	// PluginHandler registers plugins of one kind.
	PluginHandler = pluginwatch.Handler
)

// ReadCapacity returns the machine's capacity; see cgroups.ReadCapacity.
var ReadCapacity = cgroups.ReadCapacity

// OnlineCPUs returns the machine's online CPUs; see cgroups.OnlineCPUs.
var OnlineCPUs = cgroups.OnlineCPUs

// ParseName parses a path in the syntax of cgroupRoot.
var ParseName = cgroups.ParseName

// PodsName returns the cgroup of all pods below a cgroupRoot.
func PodsName(root string) cgroups.Name {
	return cgroups.ClassName(ParseName(root), v1.PodQOSGuaranteed)
}
