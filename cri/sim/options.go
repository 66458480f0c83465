package sim

import (
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Options shape a simulated runtime. Only Socket is required. Start copies the maps, so they may be changed afterwards
// without effect.
type Options struct {
	// Socket is the path of the unix socket. It must not exist yet, and Linux allows 107 bytes.
	Socket string
	// Clock is what time passes by; RealClock when nil.
	Clock Clock
	// Old answers as containerd 1.6 does: GetContainerEvents, RuntimeConfig and UpdatePodSandboxResources are
	// Unimplemented, and status answers lack the fields added later (handlers, features, image ID, user, resources).
	Old bool
	// Name and Version are what the Version call says; "containerd" and "2.4.2" (1.6.20 when Old) by default.
	Name, Version string
	// Handlers are the runtime handlers a sandbox may name; "" and "runc" by default.
	Handlers []*runtimeapi.RuntimeHandler
	// Features is reported by Status as it stands.
	Features *runtimeapi.RuntimeFeatures
	// CgroupDriver is reported by RuntimeConfig; its zero value is systemd.
	CgroupDriver runtimeapi.CgroupDriver
	// Script says how containers behave; by default each runs for ever and ends with 0 on its stop signal.
	Script Script
	// Images are the images a registry would offer with something special about them, by reference. Any other
	// reference can be pulled too and gives an ordinary image.
	Images map[string]Image
	// Preload are references present from the start.
	Preload []string
	// MaxMessage bounds an answer, in bytes: a list that is larger fails. 0 means 16 MiB.
	MaxMessage int
	// WriteLogs makes containers write CRI log files below the sandbox's log directory.
	WriteLogs bool
}

// withDefaults fills in what was left out and copies what Start keeps.
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
