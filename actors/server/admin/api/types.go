// Package api defines the protocol of the admin socket: its answers, and a client. It is HTTP/1.1 with JSON over a unix socket
// that only root may open; paths begin with the version of the protocol, /v1.
package api

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// Pods answers GET /v1/pods: the agent's complete state of its pods at one time. It is a PodList, readable by Kubernetes'
// clients, with additional fields about all pods.
type Pods struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the resource version, which counts the changes since the agent started; 0 is before its first state.
	Metadata metav1.ListMeta `json:"metadata"`
	At       time.Time       `json:"at,omitzero"`
	Pods     []Pod           `json:"items"` // by namespace and name
	Node     `json:"node"`
	Registration
}

// Registration is the control plane's view of the node; zero if the node is in no cluster, or has not registered yet.
type Registration struct {
	// LeaseExpires is when the control plane considers the node lost unless its lease is renewed.
	LeaseExpires time.Time `json:"leaseExpires,omitzero"`
	// NotReady is the reason that the Node's condition Ready is not True there, or empty.
	NotReady string `json:"nodeNotReady,omitempty"`
}

// Change is one line of GET /v1/pods?watch=true. Omitted fields have not changed since the previous line.
type Change struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at,omitzero"`
	// Full marks Pods as all known pods: on the first line and, if that was not Complete, again on the first line that is.
	Full bool `json:"full,omitempty"`
	// Pods are new or changed, each whole; Gone were removed.
	Pods []Pod `json:"pods,omitempty"`
	Gone []Ref `json:"gone,omitempty"`
	Node *Node `json:"node,omitempty"`
}

// Node has the fields that concern all pods.
type Node struct {
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
	Runtime  Runtime                    `json:"runtime"`
	// Unheard lists the sources that have not sent their desired pods yet.
	Unheard []messages.Address `json:"unheard,omitempty"`
	// Short lists the node's resource shortages in sentences.
	Short []string `json:"short,omitempty"`
	// Audited is set once the runtime has reported the running pods. Before, unlisted pods may run.
	Audited bool `json:"audited"`
}

// Complete reports whether a pod missing in this line does not exist: the line is full, all sources have sent their pods, and the
// runtime has reported the running ones. An agent that has just started knows fewer pods than there are.
func (c *Change) Complete() bool {
	return c.Full && c.Version > 0 && c.Node != nil && c.Node.Audited && len(c.Node.Unheard) == 0
}

// Ref names one pod.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Pod is one pod: the API object, with the desired spec and the current status, and the agent's own state of it.
type Pod struct {
	*v1.Pod  `json:",inline"`
	PodState `json:"agent"`
}

// PodState is the agent's state of a pod.
type PodState struct {
	Source messages.Address `json:"source,omitempty"`
	// Phase is the phase of the pod's actor, e.g. "preparing"; the API's is in the status.
	Phase string `json:"phase,omitempty"`
	// State is Summary.Status: the same word for a state in commands, on the page and in explanations.
	State   string  `json:"state,omitempty"`
	Waiting *Reason `json:"waiting,omitempty"`
	// Cause is the reason that the pod is not as desired, in one sentence; empty if it is, or progresses.
	Cause string `json:"cause,omitempty"`
	// Ending is the reason that the pod is terminating, if it is.
	Ending string `json:"ending,omitempty"`
	// Quarantine is the reason that the pod's actor is kept stopped, if it is.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// CPUs are the CPUs that containers have to themselves, by container, as "0-3,7". Only answers to a list have them.
	CPUs map[string]string `json:"cpus,omitempty"`
}

// Ref returns the pod's name.
func (p *Pod) Ref() Ref {
	return Ref{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: string(p.Pod.UID)}
}

// Reason is the reason for a wait.
type Reason struct {
	Code      string    `json:"code"`
	Message   string    `json:"message,omitempty"`
	Permanent bool      `json:"permanent,omitempty"`
	RetryAt   time.Time `json:"retryAt,omitzero"`
	// Since is the start of the awaited operation if it matters: a pull, or its place in the queue.
	Since time.Time `json:"since,omitzero"`
}

// String returns "Code: Message".
func (r Reason) String() string { return messages.Reason{Code: r.Code, Message: r.Message}.String() }

// Quarantine is the reason that an actor is kept stopped, and the end of that.
type Quarantine struct {
	Reason string    `json:"reason"`
	Until  time.Time `json:"until,omitzero"`
}

// Runtime is the agent's state of the container runtime.
type Runtime struct {
	Endpoint string `json:"endpoint,omitempty"`
	// Name, Version and APIVersion are from the last answer; empty before the first.
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Ready is set if it answers and reports itself ready; Reason explains otherwise; Since is when that began.
	Ready  bool      `json:"ready"`
	Reason *Reason   `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// NetworkReady is the runtime's own report on its network; NetworkReason explains false.
	NetworkReady  bool   `json:"networkReady"`
	NetworkReason string `json:"networkReason,omitempty"`
	// Refused is the configuration that it rejected, or empty.
	Refused string `json:"refused,omitempty"`
	// Stale is the reason that the runtime's lists are unreliable although it is ready, or empty.
	Stale string `json:"stale,omitempty"`
	// Hints is the way of noticing changes: "events" or "polling".
	Hints string `json:"hints,omitempty"`
}

// Version answers GET /v1/version.
type Version struct {
	Version    string `json:"version"`
	Kubernetes string `json:"kubernetes,omitempty"` // the tested release
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	PID        int    `json:"pid,omitempty"`     // in the PID namespace of the reader; 0 if it cannot see the process
	RootDir    string `json:"rootDir,omitempty"` // --root-dir
	// Args are the agent's flags, without secrets; empty, and not nil, for an agent without flags.
	Args []string `json:"args,omitzero"`
	// Since is when the process began to listen.
	Since   time.Time `json:"since,omitzero"`
	Runtime *Runtime  `json:"runtime,omitempty"`
}

// Figures answers GET /v1/figures with CPU and memory of the node and of its pods, in the form of the kubelet's /stats/summary.
type Figures struct {
	At            time.Time `json:"at"`
	stats.Summary `json:",inline"`
	// Allocatable is the capacity for pods; empty if unknown.
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
	Agent       Process         `json:"agent"`
	Missing     []string        `json:"missing,omitempty"` // sentences about missing figures
}

// History answers GET /v1/figures/history?pod=UID with figures of the last minutes. Recording begins with the first request for
// figures.
type History struct {
	At           time.Time `json:"at"`
	EverySeconds int       `json:"everySeconds"` // the time between two samples
	// Series has the pod itself, then its containers by name; or the node and its system containers.
	Series []Series `json:"series"`
}

// Series has the samples of the node, a pod or a container, with the requests and limits of the spec.
type Series struct {
	history.Series `json:",inline"`
	Requests       v1.ResourceList `json:"requests,omitempty"`
	Limits         v1.ResourceList `json:"limits,omitempty"`
}

// Process is the resource usage of the agent's process.
type Process struct {
	Since    time.Time     `json:"since"`          // its start
	CPU      time.Duration `json:"cpuNanoseconds"` // since its start
	Resident uint64        `json:"residentBytes"`  // current memory; 0 if unknown
}

// Actors answers GET /v1/actors.
type Actors struct {
	At     time.Time `json:"at"`
	Actors []Actor   `json:"actors"` // each before its children, the root first
	// Goroutines is the number of goroutines in the agent's process.
	Goroutines int `json:"goroutines"`
}

// Actor is one actor that runs, or that will be restarted.
type Actor struct {
	supervisors.Vitals
	Pod      string `json:"pod,omitempty"`      // namespace and name of the pod of this actor or its parent
	Manifest string `json:"manifest,omitempty"` // the name in the pod's manifest, without the node's name
}

// Inspection answers GET /v1/actors/PATH: an actor's own account.
type Inspection struct {
	Actor
	Incarnation uint64   `json:"incarnation"`
	Handled     uint64   `json:"handled"`           // messages in its current life
	Working     []string `json:"working,omitempty"` // names of work in progress outside the mailbox
	Children    []string `json:"children,omitempty"`
	Detail      any      `json:"detail,omitempty"`
}

// Explanations answers GET /v1/explain/node and GET /v1/explain/pod/NAME.
type Explanations struct {
	At    time.Time     `json:"at,omitzero"`
	Items []Explanation `json:"items"` // one per namespace with such a pod
}

// Explanation explains the state of one pod or the node, with the last messages of the pod.
type Explanation struct {
	explain.Explanation
	State    string              `json:"state,omitempty"`    // of a pod: PodState.State
	Messages []supervisors.Entry `json:"messages,omitempty"` // oldest first
}

// Finding is one wait or problem.
type Finding = explain.Finding

// Observatory answers GET /v1/observatory: the address of the observatory's port.
type Observatory struct {
	Address   string `json:"address"` // "host:port"
	TokenFile string `json:"tokenFile"`
}

// Error is the answer to a failed request, and the error that the client returns.
type Error struct {
	Status int    `json:"status"` // of HTTP
	Text   string `json:"error"`
	// Actor is the actor that did not answer, if that is the cause.
	Actor string `json:"actor,omitempty"`
	// Problems are the problems of a submitted manifest, by field.
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
	// Accepted are the pods of the manifest that were accepted before the disk failed.
	Accepted []messages.SubmittedPod `json:"accepted,omitempty"`
}

// SubmitReply answers a submission, and a withdrawal.
type SubmitReply struct {
	Pods []messages.SubmittedPod `json:"pods"`
}

// Submissions answers GET /v1/submissions.
type Submissions struct {
	Submissions []messages.Submission `json:"submissions"` // by namespace and name
}

// SubmittedObjects answers GET /v1/objects.
type SubmittedObjects struct {
	Objects []messages.SubmittedObject `json:"objects"` // by namespace, kind and name
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// ProblemText formats a manifest problem: path:line: field: message.
func ProblemText(p messages.ManifestProblem) string { return explain.ProblemText(p) }

// Images lists the images on the node, by ID.
type Images struct {
	Images []messages.NodeImage `json:"images"`
}

// ChaosRules answers GET /v1/chaos with the active rules and those that ended last, and DELETE with the rules that it has ended.
type ChaosRules struct {
	Rules []chaos.Status `json:"rules"` // the oldest first
}

// ChaosRule answers POST /v1/chaos: a rule, and the actors that it currently selects.
type ChaosRule struct {
	chaos.Status
	Targets []ChaosTarget `json:"targets"`
}

// ChaosTarget is one actor that a rule may act on.
type ChaosTarget struct {
	Path messages.Address `json:"path"`
	Pod  string           `json:"pod,omitempty"` // namespace and name of the pod of this actor or its parent
}
