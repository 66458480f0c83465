package runtime

import (
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// State is what the actor knows of the runtime, for those who must not wait for it: health, doctor, server. The zero
// value is one before the first word; safe for concurrent use.
type State struct{ p atomic.Pointer[Snapshot] }

// Load is the newest snapshot. It is never nil and must not be changed.
func (s *State) Load() *Snapshot {
	if p := s.p.Load(); p != nil {
		return p
	}
	return &Snapshot{Reason: messages.Reason{
		Code: messages.ReasonRuntimeUnavailable, Message: "the container runtime was not asked yet",
	}}
}

func (s *State) store(snapshot Snapshot) { s.p.Store(&snapshot) }

// Snapshot is the runtime at one time.
type Snapshot struct {
	Endpoint string `json:"endpoint"`
	// Name, Version and APIVersion are of the runtime that answered last; empty when none has.
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Ready says that it answers and calls itself ready; Reason says why not. Since is when that began.
	Ready  bool            `json:"ready"`
	Reason messages.Reason `json:"reason,omitzero"`
	Since  time.Time       `json:"since,omitzero"`
	// NetworkReady is the runtime's own word; pods on the host's network run without. NetworkReason says why not.
	NetworkReady  bool   `json:"networkReady"`
	NetworkReason string `json:"networkReason,omitempty"`
	// Refused is a sentence on what it was told and does not take; empty: nothing.
	Refused  string   `json:"refused,omitempty"`
	Features Features `json:"features"`
	// CgroupDriver is "systemd" or "cgroupfs"; empty when the runtime does not tell (before containerd 2.0).
	CgroupDriver string    `json:"cgroupDriver,omitempty"`
	Handlers     []Handler `json:"handlers,omitempty"`
	// Hints says how changes are noticed: by events or by polling.
	Hints Hints `json:"hints"`
	// Stale says why the runtime's lists are not to be relied on though it answers; empty when they are.
	Stale string `json:"stale,omitempty"`
	// Audited is when the last audit that succeeded began; zero when none has.
	Audited time.Time `json:"audited,omitzero"`
}

// Hints is how changes are noticed.
type Hints string

// The ways to notice changes.
const (
	ByEvents  Hints = "events"
	ByPolling Hints = "polling"
)

// Features is what the runtime says it can do. Runtimes before CRI 1.31 say nothing.
type Features struct {
	SupplementalGroupsPolicy  bool `json:"supplementalGroupsPolicy"`
	UserNamespacesHostNetwork bool `json:"userNamespacesHostNetwork"`
}

// Handler is one runtime handler, which a RuntimeClass names; "" is the default.
type Handler struct {
	Name                    string `json:"name"`
	RecursiveReadOnlyMounts bool   `json:"recursiveReadOnlyMounts"`
	UserNamespaces          bool   `json:"userNamespaces"`
}

// describe takes over what the runtime said of itself.
func (s *Snapshot) describe(version *runtimeapi.VersionResponse, status *runtimeapi.StatusResponse) {
	s.Name, s.Version, s.APIVersion = version.GetRuntimeName(), version.GetRuntimeVersion(), version.GetRuntimeApiVersion()
	f := status.GetFeatures()
	s.Features = Features{f.GetSupplementalGroupsPolicy(), f.GetUserNamespacesHostNetwork()}
	s.Handlers = nil
	for _, h := range status.GetRuntimeHandlers() {
		s.Handlers = append(s.Handlers, Handler{
			h.GetName(), h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces(),
		})
	}
	s.NetworkReady, s.NetworkReason = true, ""
	if c := condition(status, runtimeapi.NetworkReady); c != nil && !c.GetStatus() {
		s.NetworkReady, s.NetworkReason = false, conditionText(c)
	}
}

func condition(status *runtimeapi.StatusResponse, kind string) *runtimeapi.RuntimeCondition {
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func conditionText(c *runtimeapi.RuntimeCondition) string {
	switch {
	case c.GetReason() == "":
		return c.GetMessage()
	case c.GetMessage() == "":
		return c.GetReason()
	default:
		return c.GetReason() + ": " + c.GetMessage()
	}
}

// Inspection is the actor's detail of an inspection.
type Inspection struct {
	Phase    string   `json:"phase"`
	Runtime  Snapshot `json:"runtime"`
	Pods     int      `json:"pods"`     // that the CRI knows of
	ToRead   int      `json:"toRead"`   // pods that wait to be read, or are being read
	Reading  int      `json:"reading"`  // of them, being read
	ToRemove int      `json:"toRemove"` // pods whose remains wait to be removed, or are being removed
	// PodCIDR is the pods' range of addresses that the runtime was told.
	PodCIDR string `json:"podCIDR,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	toRead, reading, _ := a.queue.Counts()
	return Inspection{
		Phase: string(a.phase), Runtime: a.link.snapshot, Pods: len(a.known),
		ToRead: toRead, Reading: reading, ToRemove: len(a.bin.line) + a.bin.removing, PodCIDR: a.cidrs.actual,
	}
}
