package sim

import (
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options configure a simulated runtime. Only Socket is required. Start copies the maps, so later changes have no effect.
type Options struct {
	// Socket is the path of the unix socket. It must not exist yet, and Linux allows 107 bytes.
	Socket string
	// Clock is the source of time; RealClock by default.
	Clock Clock
	// Old selects the answers of containerd 1.6: GetContainerEvents, RuntimeConfig and UpdatePodSandboxResources are
	// Unimplemented, and status answers lack the fields added later (handlers, features, image ID, user, resources).
	Old bool
	// Name and Version are the answer to Version; "containerd" and "2.4.2" (1.6.20 when Old) by default.
	Name, Version string
	// Handlers are the valid runtime handlers of a sandbox; "" and "runc" by default.
	Handlers []*runtimeapi.RuntimeHandler
	// Features is reported by Status.
	Features *runtimeapi.RuntimeFeatures
	// CgroupDriver is reported by RuntimeConfig; its zero value is systemd.
	CgroupDriver runtimeapi.CgroupDriver
	// Script is the behaviour of containers; by default each runs forever and exits with 0 on its stop signal.
	Script Script
	// Images are the images with special properties in the registry, by reference. Any other reference can be pulled too and
	// gives an ordinary image.
	Images map[string]Image
	// Preload lists the references present from the start.
	Preload []string
	// MaxMessage limits an answer, in bytes: a larger list fails. 0 means 16 MiB.
	MaxMessage int
	// WriteLogs makes containers write CRI log files below the sandbox's log directory.
	WriteLogs bool
}

// withDefaults sets the defaults and copies the fields that Start keeps.
func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = RealClock{}
	}
	if o.Name == "" {
		o.Name = "containerd"
	}
	if o.Version == "" {
		o.Version = "2.4.2"
		if o.Old {
			o.Version = "1.6.20"
		}
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = maxMessage
	}
	if o.Handlers == nil {
		o.Handlers = []*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "runc"}}
	}
	o.Script.ByContainer = maps.Clone(o.Script.ByContainer)
	return o
}
