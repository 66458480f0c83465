package runtime

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// State is the actor's published state, for components that must not block on it: health, doctor, server. The zero value is
// valid before the first snapshot. It is safe for concurrent use.
type State struct{ p atomic.Pointer[Snapshot] }

// Load returns the newest snapshot. It is never nil and must not be changed.
func (s *State) Load() *Snapshot {
	if p := s.p.Load(); p != nil {
		return p
	}
	return &Snapshot{Reason: messages.Reason{
		Code: messages.ReasonRuntimeUnavailable, Message: "the container runtime was not asked yet",
	}}
}

func (s *State) store(snapshot Snapshot) { s.p.Store(&snapshot) }

// Snapshot is the state of the runtime at one time.
type Snapshot struct {
	Endpoint string `json:"endpoint"`
	// Name, Version and APIVersion are of the runtime that answered last; empty before the first answer.
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Ready is true if the runtime answers and reports itself ready; otherwise Reason explains. Since is the last change of
	// Ready.
	Ready  bool            `json:"ready"`
	Reason messages.Reason `json:"reason,omitzero"`
	Since  time.Time       `json:"since,omitzero"`
	// NetworkReady is the runtime's own condition; pods on the host's network run without. NetworkReason explains false.
	NetworkReady  bool   `json:"networkReady"`
	NetworkReason string `json:"networkReason,omitempty"`
	// Refused is a sentence on the configuration that the runtime rejects; empty: none.
	Refused  string   `json:"refused,omitempty"`
	Features Features `json:"features"`
	// CgroupDriver is "systemd" or "cgroupfs"; empty when the runtime does not report it (before containerd 2.0).
	CgroupDriver string    `json:"cgroupDriver,omitempty"`
	Handlers     []Handler `json:"handlers,omitempty"`
	// Hints is the way to notice changes: events or polling.
	Hints Hints `json:"hints"`
	// Stale is the reason why the lists are unreliable although the runtime answers; empty when they are reliable.
	Stale string `json:"stale,omitempty"`
	// Answered is when the runtime last passed a check, and Away how long it has been away since the actor started, without the
	// present absence.
	Answered time.Time     `json:"-"`
	Away     time.Duration `json:"-"`
	// Audited is the start of the last successful audit; zero before the first.
	Audited time.Time `json:"audited,omitzero"`
}

// Hints is a way to notice changes.
type Hints string

// The ways to notice changes.
const (
	ByEvents  Hints = "events"
	ByPolling Hints = "polling"
)

// Features are the capabilities that the runtime reports. Runtimes before CRI 1.31 report none.
type Features struct {
	SupplementalGroupsPolicy  bool `json:"supplementalGroupsPolicy"`
	UserNamespacesHostNetwork bool `json:"userNamespacesHostNetwork"`
}

// Handler is a runtime handler, to which a RuntimeClass refers; "" is the default.
type Handler struct {
	Name                    string `json:"name"`
	RecursiveReadOnlyMounts bool   `json:"recursiveReadOnlyMounts"`
	UserNamespaces          bool   `json:"userNamespaces"`
}

// describe copies the runtime's description of itself.
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
	// containerd lists them in another order each time, and each order would be a change of the Node.
	slices.SortFunc(s.Handlers, func(x, y Handler) int { return strings.Compare(x.Name, y.Name) })
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

// Inspection is the actor's part of an inspection.
type Inspection struct {
	Phase    string   `json:"phase"`
	Runtime  Snapshot `json:"runtime"`
	Pods     int      `json:"pods"`     // the pods known to the CRI
	ToRead   int      `json:"toRead"`   // pods waiting to be read or being read
	Reading  int      `json:"reading"`  // the pods being read
	ToRemove int      `json:"toRemove"` // pods with remains to be removed or being removed
	// PodCIDR is the pods' address range, as sent to the runtime.
	PodCIDR string `json:"podCIDR,omitempty"`
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	toRead, reading, _ := a.queue.Counts()
	return Inspection{
		Phase: string(a.phase), Runtime: a.link.snapshot, Pods: len(a.reported),
		ToRead: toRead, Reading: reading, ToRemove: len(a.collector.queue) + a.collector.removing, PodCIDR: a.cidrs.actual,
	}
}
