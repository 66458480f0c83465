package messages

import (
	"errors"
	"regexp"
	"strings"
)

// Address names an actor by its path in the tree, without the root: "images", "pods/<uid>", "pods/<uid>/<container>".
// The root itself is Node. An address stays valid across restarts of the actor behind it.
type Address string

// Addresses of the actors that exist once.
const (
	Node    Address = ""
	Sources Address = "sources"
	File    Address = "sources/file"
	URL     Address = "sources/url"
	Submit  Address = "sources/submit"
	// APIServer has the pods that the API server assigns to this node.
	APIServer Address = "sources/apiserver"
	Pods      Address = "pods"
	Runtime   Address = "runtime"
	Images    Address = "images"
	Volumes   Address = "volumes"
	Prober    Address = "prober"
	Objects   Address = "objects"
	// Resources has the cgroups.
	Resources Address = "resources"
	// Logs keeps the log files of containers small.
	Logs   Address = "logs"
	Server Address = "server"
	// Status writes the statuses of pods to the API server, and their mirror pods.
	Status Address = "status"
	// Registration has the Node object, its conditions and its lease.
	Registration Address = "registration"
	// Identity holds this node's certificates.
	Identity Address = "identity"
	// Stats measures the disk usage of pods for readers of metrics.
	Stats Address = "stats"
	// Eviction measures the node's resources and evicts pods under pressure.
	Eviction Address = "eviction"
	// Shutdown ends the pods when the machine shuts down.
	Shutdown Address = "shutdown"
	// Events writes Kubernetes Events.
	Events Address = "events"
)

// uids matches a valid UID. UIDs become elements of addresses, and names of folders that are removed recursively.
var uids = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]{0,126}[A-Za-z0-9])?$`)

// CheckUID returns an error unless the UID of a pod can be one element of an address and of a path. UUIDs and hashes can.
func CheckUID(uid string) error {
	if !uids.MatchString(uid) {
		return errors.New("a UID is at most 128 letters, digits, '-', '.' and '_', and begins and ends with a letter or digit")
	}
	return nil
}

// PodAddress is the address of the actor of the pod with this UID.
func PodAddress(uid string) Address { return Pods.Child(uid) }

// ContainerAddress is the address of the actor of one container of a pod.
func ContainerAddress(uid, container string) Address { return PodAddress(uid).Child(container) }

// Child is the address of the child with this name.
func (a Address) Child(name string) Address {
	if a == Node {
		return Address(name)
	}
	return a + "/" + Address(name)
}

// Parent is the address of the supervisor; the root is its own.
func (a Address) Parent() Address {
	i := strings.LastIndexByte(string(a), '/')
	if i < 0 {
		return Node
	}
	return a[:i]
}

// Name is the last element of the path; the root's is "node".
func (a Address) Name() string {
	if a == Node {
		return "node"
	}
	return string(a[strings.LastIndexByte(string(a), '/')+1:])
}

// PodUID returns the UID of the pod whose actor, or child of it, has this address. It is empty for other addresses.
func (a Address) PodUID() string {
	rest, ok := strings.CutPrefix(string(a), string(Pods)+"/")
	if !ok {
		return ""
	}
	uid, _, _ := strings.Cut(rest, "/")
	return uid
}

// String is the path as it is printed: the root is "node".
func (a Address) String() string {
	if a == Node {
		return "node"
	}
	return string(a)
}
