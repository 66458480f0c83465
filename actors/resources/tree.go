package resources

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
)

// What the command needs to say which cgroups there are to be; cmd may not import actors/internal.
type (
	// Tree is the kubelet's tree of cgroups.
	Tree = cgroups.Tree
	// Groups are the cgroups of a machine.
	Groups = cgroups.Groups
	// Name is where a cgroup is in its tree.
	Name = cgroups.Name
	// Host is the machine's own.
	Host = cgroups.Host
	// Settings are what their values depend on.
	Settings = cgroups.Settings
	// Capacity is what the machine has.
	Capacity = cgroups.Capacity
	// Reservation is what is reserved for a cgroup that others have made.
	Reservation = cgroups.Reservation
)

// NewDevices makes the process's device plugins known; see devices.New.
var NewDevices = devices.New

// ReadCapacity reads what the machine has; see cgroups.ReadCapacity.
var ReadCapacity = cgroups.ReadCapacity

// OnlineCPUs are the CPUs that the machine has; see cgroups.OnlineCPUs.
var OnlineCPUs = cgroups.OnlineCPUs

// ParseName reads a path as cgroupRoot has it.
var ParseName = cgroups.ParseName

// PodsName is the cgroup of all pods below a cgroupRoot.
func PodsName(root string) cgroups.Name {
	return cgroups.ClassName(ParseName(root), v1.PodQOSGuaranteed)
}
