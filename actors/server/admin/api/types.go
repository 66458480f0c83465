// Package api is the language of the admin socket: what its answers hold, and a client that speaks it. It is
// HTTP/1.1 with JSON over a unix socket that root alone may open; paths begin with the version of the language, /v1.
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

// Pods answers GET /v1/pods: all that the agent knows of its pods at one time. It is a PodList, as Kubernetes' clients read it,
// with what concerns all pods beside it.
type Pods struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the resource version, which counts the changes since the agent began; 0 is before it knew anything.
	Metadata metav1.ListMeta `json:"metadata"`
	At       time.Time       `json:"at,omitzero"`
	Pods     []Pod           `json:"items"` // by namespace and name
	Node     `json:"node"`
	Registered
}

// Registered is what the control plane has of the node; empty: the node is in no cluster, or has not registered yet.
type Registered struct {
	// LeaseExpires is when the control plane takes the node for lost unless its lease is renewed.
	LeaseExpires time.Time `json:"leaseExpires,omitzero"`
	// NotReady is why the Node's condition Ready is not True there; empty: it is.
	NotReady string `json:"nodeNotReady,omitempty"`
}

// Change is one line of GET /v1/pods?watch=true. What it leaves out did not change since the line before.
type Change struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at,omitzero"`
	// Full says that Pods are all that the agent knows of: on the first line, and, where that was not Complete, once more
	// on the first line that is.
	Full bool `json:"full,omitempty"`
	// Pods are new or changed, each whole; Gone are forgotten.
	Pods []Pod `json:"pods,omitempty"`
	Gone []Ref `json:"gone,omitempty"`
	Node *Node `json:"node,omitempty"`
}

// Node is what concerns all pods.
type Node struct {
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
	Runtime  Runtime                    `json:"runtime"`
	// Unheard are the sources that have not sent yet what they want.
	Unheard []messages.Address `json:"unheard,omitempty"`
	// Short says what the node is short of, a sentence each.
	Short []string `json:"short,omitempty"`
	// Audited says that the runtime has told what runs. Before, pods may run that are not shown.
	Audited bool `json:"audited"`
}

// Complete says that a pod which this line does not have is not there: it has all, and everybody has said what is wanted and
// what runs. An agent that has only started knows of fewer pods than there are.
func (c *Change) Complete() bool {
	return c.Full && c.Version > 0 && c.Node != nil && c.Node.Audited && len(c.Node.Unheard) == 0
}

// Ref names one pod.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Pod is one pod: the API object, with the spec as wanted and the status as it is, and beside these what the agent is doing
// about it.
type Pod struct {
	*v1.Pod  `json:",inline"`
	PodState `json:"agent"`
}

// PodState is what the agent is doing about a pod.
type PodState struct {
	Source messages.Address `json:"source,omitempty"`
	// Phase is that of the pod's actor, e.g. "preparing"; the API's is in the status.
	Phase string `json:"phase,omitempty"`
	// State is the word of Summary.Status: one for one state in the commands, on the page and in explanations.
	State   string  `json:"state,omitempty"`
	Waiting *Reason `json:"waiting,omitempty"`
	// Cause is why the pod is not as it should be, in one sentence; empty where it is, or is on its way.
	Cause string `json:"cause,omitempty"`
	// Ending is why the pod is being ended, when it is.
	Ending string `json:"ending,omitempty"`
	// Quarantine is why the pod's actor is left stopped, when it is.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// Ref is the pod's name.
func (p *Pod) Ref() Ref {
	return Ref{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: string(p.Pod.UID)}
}

// Reason is why something waits.
type Reason struct {
	Code      string    `json:"code"`
	Message   string    `json:"message,omitempty"`
	Permanent bool      `json:"permanent,omitempty"`
	RetryAt   time.Time `json:"retryAt,omitzero"`
	// Since is when what is waited for began, where that is of interest: a pull, or its place in the queue.
	Since time.Time `json:"since,omitzero"`
}

// String is "Code: Message".
func (r Reason) String() string { return messages.Reason{Code: r.Code, Message: r.Message}.String() }

// Quarantine is why an actor is left stopped, and until when.
type Quarantine struct {
	Reason string    `json:"reason"`
	Until  time.Time `json:"until,omitzero"`
}

// Runtime is the container runtime as the agent knows it.
type Runtime struct {
	Endpoint string `json:"endpoint,omitempty"`
	// Name, Version and APIVersion are of the runtime that answered last; empty when none has.
	Name       string `json:"name,omitempty"`
	Version    string `json:"version,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Ready says that it answers and calls itself ready; Reason why not; Since when that began.
	Ready  bool      `json:"ready"`
	Reason *Reason   `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// NetworkReady is the runtime's own word on its network; NetworkReason why not.
	NetworkReady  bool   `json:"networkReady"`
	NetworkReason string `json:"networkReason,omitempty"`
	// Refused is what it was told and does not take; empty: nothing.
	Refused string `json:"refused,omitempty"`
	// Stale is why the runtime's lists are not to be relied on though it is ready; empty: they are.
	Stale string `json:"stale,omitempty"`
	// Hints is how changes are noticed: "events" or "polling".
	Hints string `json:"hints,omitempty"`
}

// Version answers GET /v1/version.
type Version struct {
	Version    string `json:"version"`
	Kubernetes string `json:"kubernetes,omitempty"` // the release that it is tested against
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	PID        int    `json:"pid,omitempty"`
	RootDir    string `json:"rootDir,omitempty"` // --root-dir
	// Since is when the process began to listen.
	Since   time.Time `json:"since,omitzero"`
	Runtime *Runtime  `json:"runtime,omitempty"`
}

// Figures answers GET /v1/figures with the CPU and the memory of the node and of its pods, in the form of the kubelet's
// /stats/summary.
type Figures struct {
	At            time.Time `json:"at"`
	stats.Summary `json:",inline"`
	// Allocatable is what pods can have of the machine; empty where that is not known.
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
	Agent       Process         `json:"agent"`
	Missing     []string        `json:"missing,omitempty"` // sentences on what could not be read
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

// Process is what a process of the agent has used.
type Process struct {
	Since    time.Time     `json:"since"`          // its start
	CPU      time.Duration `json:"cpuNanoseconds"` // since then
	Resident uint64        `json:"residentBytes"`  // memory that it has now; 0: not known
}

// Actors answers GET /v1/actors.
type Actors struct {
	At     time.Time `json:"at"`
	Actors []Actor   `json:"actors"` // each before its children, the root first
	// Goroutines are those of the agent's process.
	Goroutines int `json:"goroutines"`
}

// Actor is one actor that runs, or that is to run again.
type Actor struct {
	supervisors.Vitals
	Pod      string `json:"pod,omitempty"`      // namespace and name of the pod that it, or its parent, is the actor of
	Manifest string `json:"manifest,omitempty"` // what the manifest of that pod calls it, without the node's name
}

// Inspection answers GET /v1/actors/PATH: an actor's own account.
type Inspection struct {
	Actor
	Incarnation uint64   `json:"incarnation"`
	Handled     uint64   `json:"handled"`           // messages of its present life
	Working     []string `json:"working,omitempty"` // names of work under way outside the mailbox
	Children    []string `json:"children,omitempty"`
	Detail      any      `json:"detail,omitempty"`
}

// Explanations answers GET /v1/explain/node and GET /v1/explain/pod/NAME.
type Explanations struct {
	At    time.Time     `json:"at,omitzero"`
	Items []Explanation `json:"items"` // one a namespace that has such a pod
}

// Explanation is why one pod, or the node, is in the state that it is in, with the last messages of the pod.
type Explanation struct {
	explain.Explanation
	State    string              `json:"state,omitempty"`    // of a pod: PodState.State
	Messages []supervisors.Entry `json:"messages,omitempty"` // oldest first
}

// Finding is one thing that is waited for, or is wrong.
type Finding = explain.Finding

// Observatory answers GET /v1/observatory: where the page is served beside the admin socket.
type Observatory struct {
	Address   string `json:"address"` // "host:port"
	TokenFile string `json:"tokenFile"`
}

// Error is the answer to a request that failed, and the error that the client returns then.
type Error struct {
	Status int    `json:"status"` // of HTTP
	Text   string `json:"error"`
	// Actor is the one that did not answer, when that is what happened.
	Actor string `json:"actor,omitempty"`
	// Problems are what is wrong with a manifest that was submitted, field by field.
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
	// Accepted are the pods of the same manifest that were accepted before the disk failed.
	Accepted []messages.SubmittedPod `json:"accepted,omitempty"`
}

// Submitted answers a submission, and a withdrawal.
type Submitted struct {
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

// ProblemText is one line on a manifest problem: path:line: field: message.
func ProblemText(p messages.ManifestProblem) string { return explain.ProblemText(p) }

// Images are those on the node, by ID.
type Images struct {
	Images []messages.NodeImage `json:"images"`
}

// ChaosRules answers GET /v1/chaos with the rules in force and those that ended last, and DELETE with those that it has ended.
type ChaosRules struct {
	Rules []chaos.Status `json:"rules"` // the oldest first
}

// ChaosRule answers POST /v1/chaos: a rule, and the actors that it chooses at this time.
type ChaosRule struct {
	chaos.Status
	Targets []ChaosTarget `json:"targets"`
}

// ChaosTarget is one actor that a rule may act on.
type ChaosTarget struct {
	Path messages.Address `json:"path"`
	Pod  string           `json:"pod,omitempty"` // namespace and name of the pod that it, or its parent, is the actor of
}
