package agent

import (
	"cmp"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// runtimeForAdmin translates the runtime actor's state for the admin socket: no actor's package knows another's.
func runtimeForAdmin(state *runtime.State) func() api.Runtime {
	return func() api.Runtime {
		s := state.Load()
		out := api.Runtime{
			Endpoint: s.Endpoint, Name: s.Name, Version: s.Version, APIVersion: s.APIVersion, Ready: s.Ready, Since: s.Since,
			NetworkReady: s.NetworkReady, NetworkReason: s.NetworkReason, Refused: s.Refused, Stale: s.Stale,
			Hints: string(s.Hints),
		}
		if r := s.Reason; r.Code != "" {
			out.Reason = &api.Reason{Code: r.Code, Message: r.Message, Permanent: r.Permanent, RetryAt: r.RetryAt}
		}
		return out
	}
}

// abilities translates what the runtime says it can do for the actors of pods. The cgroup driver of the configuration counts
// where the runtime does not report its own (KEP-4033).
func abilities(state *runtime.State, cgroupDriver string) func() pod.Abilities {
	return func() pod.Abilities {
		s := state.Load()
		can := pod.Abilities{SupplementalGroupsPolicy: s.Features.SupplementalGroupsPolicy,
			RecursiveReadOnlyMounts: map[string]bool{}}
		can.SystemdCgroups = cmp.Or(s.CgroupDriver, cgroupDriver) == "systemd"
		for _, h := range s.Handlers {
			can.RecursiveReadOnlyMounts[h.Name] = h.RecursiveReadOnlyMounts
		}
		return can
	}
}
