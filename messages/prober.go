package messages

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// ProbeKind is the purpose of a probe.
type ProbeKind string

// The kinds of probes, in the kubelet's words.
const (
	Startup   ProbeKind = "startup"
	Readiness ProbeKind = "readiness"
	Liveness  ProbeKind = "liveness"
)

// ProbeKinds lists them, the one that gates the others first.
var ProbeKinds = []ProbeKind{Startup, Readiness, Liveness}

// ProbeResult is a probe's result for its container, after its thresholds. It is empty while there is none.
type ProbeResult string

// The results.
const (
	ProbeSucceeded ProbeResult = "succeeded"
	ProbeFailed    ProbeResult = "failed"
)

// ProbeResults are the words of all probes of one container.
type ProbeResults struct {
	Startup   ProbeResult `json:"startup,omitempty"`
	Readiness ProbeResult `json:"readiness,omitempty"`
	Liveness  ProbeResult `json:"liveness,omitempty"`
}

// Of is the result of one kind.
func (r *ProbeResults) Of(kind ProbeKind) *ProbeResult {
	switch kind {
	case Readiness:
		return &r.Readiness
	case Liveness:
		return &r.Liveness
	case Startup:
	}
	return &r.Startup
}

// Learn takes the results of o. It keeps its own where o has none.
func (r *ProbeResults) Learn(o ProbeResults) {
	for _, kind := range ProbeKinds {
		if word := *o.Of(kind); word != "" {
			*r.Of(kind) = word
		}
	}
}

// Probe is the container's probe of one kind; nil when it has none.
func Probe(c *v1.Container, kind ProbeKind) *v1.Probe {
	switch kind {
	case Readiness:
		return c.ReadinessProbe
	case Liveness:
		return c.LivenessProbe
	case Startup:
	}
	return c.StartupProbe
}

// WatchedContainer is one container that has probes, as the pod knows it.
type WatchedContainer struct {
	Spec      *v1.Container // immutable
	ID        string        // of the attempt; results of others do not count
	StartedAt time.Time
	Run       []ProbeKind  // the probes that are to run now
	Known     ProbeResults // the results that the pod uses
}

// ObservedContainer is the prober's state of one container.
type ObservedContainer struct {
	Name, ID string
	Results  ProbeResults
	// Failing are its probes that fail now, whether that counts already or not. It is for people.
	Failing []FailingProbe
}

// FailingProbe is a probe that fails, with the output of its latest run and the time of its first failure.
type FailingProbe struct {
	Kind  ProbeKind
	Said  string
	Since time.Time
}

// WatchProbes is the desired state of the pod's probes: those named run, all others of the pod do not. A container is named
// for as long as its results count. No containers: the prober forgets the pod. Sending it again changes nothing.
//
// Sender: pod. Receiver: prober. Reply: ProbesObserved with its generation.
// If lost: the pod sends it again when its timeout ends. After an answer it also sends it with a reading when the prober has
// been silent for 50 s: the prober may have restarted, and its ServiceStarted may be lost.
type WatchProbes struct {
	UID        string
	Generation uint64
	Pod        *v1.Pod  // immutable; for events
	Order      int64    // the pod's place in the queue for the runtime
	IPs        []string // where the pod can be reached
	Containers []WatchedContainer
}

// ProbesObserved is all that the prober knows of a pod's probes: after WatchProbes, and whenever a result changes.
//
// Sender: prober. Receiver: pod. Reply: WatchProbes that shows it as known.
// If lost: the prober sends it again every few seconds until the pod shows it as known.
type ProbesObserved struct {
	UID        string
	Generation uint64 // of the desired state that this is known under
	Containers []ObservedContainer
}
