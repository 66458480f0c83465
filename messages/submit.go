package messages

import (
	"encoding/json"
	"time"
)

// SubmittedPod is what became of one pod of a submission.
type SubmittedPod struct {
	// Namespace and Name are those of the manifest; a submission is known by them.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// PodName is the name that the pod runs under: the node's is appended, as to every static pod's.
	PodName string `json:"podName"`
	UID     string `json:"uid"`
	// Change is what the submission changed.
	Change SubmissionChange `json:"change"`
	// Kind is that of an object that is no pod, ConfigMap or Secret; PodName is its name then, and it has no UID.
	Kind string `json:"kind,omitempty"`
	// Note says which fields of what was no Pod count here.
	Note string `json:"note,omitempty"`
	// Before and After are the pod as its author wrote it, of what was submitted before and of this; of a dry run alone.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// SubmissionChange is what a submission or a withdrawal changed of one pod.
type SubmissionChange string

// The changes.
const (
	PodCreated    SubmissionChange = "created"
	PodConfigured SubmissionChange = "configured" // another version took the place of the one before
	PodUnchanged  SubmissionChange = "unchanged"
	PodDeleted    SubmissionChange = "deleted"
	// PodHurried is of a pod that was ending already, and has less time for it now; PodTerminating of one that is left to it.
	PodHurried     SubmissionChange = "hurried"
	PodTerminating SubmissionChange = "terminating"
)

// Submission is one pod as it was submitted. Immutable.
type Submission struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	PodName   string          `json:"podName"`
	UID       string          `json:"uid"`
	Accepted  time.Time       `json:"accepted"`
	Manifest  json.RawMessage `json:"manifest"` // the Pod as its author wrote it, as JSON
}

// Refusal is the kind of reason for which a submission was refused.
type Refusal string

// The refusals.
const (
	RefusedMalformed Refusal = "malformed" // it is no manifest
	RefusedInvalid   Refusal = "invalid"   // fields of it are wrong
	RefusedConflict  Refusal = "conflict"  // something else has the name, or the UID
	RefusedUnknown   Refusal = "unknown"   // there is no such submission
	RefusedNoSpace   Refusal = "no space"  // the disk is full
	RefusedFailure   Refusal = "failure"   // the disk failed: what is kept is not known
)

// SubmitPods asks that the pods of a manifest be wanted from now on, by name: sending it again changes nothing.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: PodsSubmitted or SubmissionRefused.
// If lost: the client gets no answer and may send it again.
type SubmitPods struct {
	Manifest []byte // immutable; one or more documents
	// Namespace and Name are set when the manifest must be that of this one pod.
	Namespace, Name string
	// Replace allows another version of the pod to be replaced; without it that is a conflict.
	Replace bool
	// DryRun has everything checked and answered, and nothing changed.
	DryRun bool
}

// PodsSubmitted says that the pods are wanted and that this is on disk: it survives the agent and the machine.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may submit again, which changes nothing.
type PodsSubmitted struct{ Pods []SubmittedPod }

// WithdrawPod asks that a submitted pod be wanted no more.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: PodWithdrawn or SubmissionRefused.
// If lost: the client gets no answer and may send it again.
type WithdrawPod struct {
	// Name is that of the manifest, or the name that the pod runs under.
	Namespace, Name string
	// Exact: the name is that of the manifest alone. Asked twice, the other one could be another pod's.
	Exact bool
	// Kind is ConfigMap or Secret where it is no pod.
	Kind string
	// Grace is how long the pod has at most, in seconds, also where it ends already; nil: its own.
	Grace *int64
	// DryRun has it checked and answered, and nothing changed.
	DryRun bool
}

// PodWithdrawn says that the pod is wanted no more and that this is on disk.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer; asking again, it hears that there is no such submission.
type PodWithdrawn struct{ Pod SubmittedPod }

// SubmissionRefused says why something was not done.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may send it again.
type SubmissionRefused struct {
	Why      Refusal
	Message  string
	Problems []ManifestProblem
	// Accepted are the pods of the same manifest that were accepted before the disk failed.
	Accepted []SubmittedPod
}

// GetSubmissions asks what was submitted: all of it, or the pod of this name.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: SubmissionsReported or SubmissionRefused.
// If lost: the client gets no answer and may ask again.
type GetSubmissions struct{ Namespace, Name string }

// SubmissionsReported lists what was submitted, by namespace and name.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may ask again.
type SubmissionsReported struct{ Submissions []Submission }

// GetSubmittedObjects asks which ConfigMaps and Secrets were submitted.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: SubmittedObjectsReported or SubmissionRefused.
// If lost: the client gets no answer and may ask again.
type GetSubmittedObjects struct{}

// SubmittedObjectsReported lists the submitted ConfigMaps and Secrets, by namespace, kind and name.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may ask again.
type SubmittedObjectsReported struct{ Objects []SubmittedObject }

// SubmittedObject is a submitted ConfigMap or Secret. It has the names of the values and no value.
type SubmittedObject struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Keys      []string  `json:"keys"`
	Accepted  time.Time `json:"accepted"` // the last change
}
