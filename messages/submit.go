package messages

import (
	"encoding/json"
	"time"
)

// SubmittedPod is the result of a submission for one pod.
type SubmittedPod struct {
	// Namespace and Name are taken from the manifest. They identify a submission.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// PodName is the name that the pod runs under: the node's is appended, as to every static pod's.
	PodName string `json:"podName"`
	UID     string `json:"uid"`
	// Change is the effect of the submission on the pod.
	Change SubmissionChange `json:"change"`
	// Kind is set for an object other than a pod, ConfigMap or Secret. PodName is its name then, and it has no UID.
	Kind string `json:"kind,omitempty"`
	// Note lists the fields of such an object that have an effect here.
	Note string `json:"note,omitempty"`
	// Before and After are the pod as its author wrote it, in the earlier submission and in this one. Only a dry run sets
	// them.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// SubmissionChange is the effect of a submission or a withdrawal on one pod.
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
	RefusedFailure   Refusal = "failure"   // the disk failed: its state is unknown
)

// SubmitPods adds the pods of a manifest to the desired pods, by name. Sending it again changes nothing.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: PodsSubmitted or SubmissionRefused.
// If lost: the client gets no answer and may send it again.
type SubmitPods struct {
	Manifest []byte // immutable; one or more documents
	// Namespace and Name are set when the manifest must contain exactly this pod.
	Namespace, Name string
	// Replace allows another version of the pod to be replaced; without it that is a conflict.
	Replace bool
	// DryRun has everything checked and answered, and nothing changed.
	DryRun bool
}

// PodsSubmitted confirms that the pods are desired and recorded on disk. The record survives a restart of the agent and of
// the machine.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer and may submit again, which changes nothing.
type PodsSubmitted struct{ Pods []SubmittedPod }

// WithdrawPod removes a submitted pod from the desired pods.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: PodWithdrawn or SubmissionRefused.
// If lost: the client gets no answer and may send it again.
type WithdrawPod struct {
	// Name is the name in the manifest, or the name of the running pod.
	Namespace, Name string
	// Exact restricts Name to the name in the manifest. A repeated request could otherwise match another pod.
	Exact bool
	// Kind is ConfigMap or Secret where it is no pod.
	Kind string
	// Grace is how long the pod has at most, in seconds, also where it ends already; nil: its own.
	Grace *int64
	// DryRun has it checked and answered, and nothing changed.
	DryRun bool
}

// PodWithdrawn confirms that the pod is no longer desired, and that this is recorded on disk.
//
// Sender: submit. Receiver: server, for the client. Reply: none.
// If lost: the client gets no answer; when it asks again, the submission does not exist.
type PodWithdrawn struct{ Pod SubmittedPod }

// SubmissionRefused gives the reason why a request was refused.
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

// GetSubmissions asks for all submissions, or for the pod of this name.
//
// Sender: server, for a client of the admin socket. Receiver: submit. Reply: SubmissionsReported or SubmissionRefused.
// If lost: the client gets no answer and may ask again.
type GetSubmissions struct{ Namespace, Name string }

// SubmissionsReported lists the submitted pods by namespace and name.
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
