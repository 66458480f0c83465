// Package board holds the published state of the pods actor for readers outside the tree. Handlers and commands read the
// newest immutable snapshot without asking an actor.
package board

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Pod is one pod as it is published. Immutable.
type Pod struct {
	Pod     *v1.Pod // the desired pod, without a status
	Status  *v1.PodStatus
	Source  messages.Address
	Phase   string // of the pod's actor
	Waiting *messages.Reason
	// Holds are the reasons for which containers wait, one for each that does.
	Holds []messages.Reason
	// Cause is why the node refused or ended the pod; zero where it did neither.
	Cause messages.Cause
	// Ending is why the pod is being ended, when it is.
	Ending string
	// EndingSince is when that began, and EndingGrace how long its containers are given.
	EndingSince time.Time
	EndingGrace *int64 // seconds
	// Failure is the reason why the node ends, or has ended, a pod that its source still has. Immutable.
	Failure *messages.PodFailure
	// Held are folders of its volumes, and its own, that are kept because the agent cannot undo them. Immutable.
	Held []messages.HeldFolder
	// Quarantine is why the pod's actor is left stopped, when it is.
	Quarantine *messages.ChildQuarantined
}

// Snapshot is all that the pods actor knows at one time. Immutable.
type Snapshot struct {
	Version uint64
	At      time.Time
	Pods    []Pod // by namespace and name
	// Over are ended pods that remain only in the API server.
	Over     []Pod
	Problems []messages.ManifestProblem
	// Under are the kinds of shortage that the node has.
	Under []v1.NodeConditionType
	// Unwritten lists failed disk writes as sentences, for health.
	Unwritten []string
	// Held are all folders of volumes and pods that are kept because the agent cannot undo them. Immutable.
	Held    []messages.HeldFolder
	Runtime messages.RuntimeStateChanged
	// Unheard are the sources that have not sent their first list yet.
	Unheard []messages.Address
	// Life identifies an incarnation of the pods actor. Each one learns the set of pods from the beginning.
	Life time.Time
	// Audited: an audit of the runtime has ended in this life of the agent. Before that, pods may run that are not among Pods.
	Audited bool
	// Unclaimed counts pods that run without an actor: those held, and those that no source names and that are not ended.
	Unclaimed int
	// Spared are the pods that run although no usable manifest names them, by name. Immutable.
	Spared []SparedPod
}

// SparedPod is a running pod that no usable manifest names, and that is left alone for an unusable one.
type SparedPod struct {
	UID  string
	Name string // namespace/name
	// Source is the source that the pod's sandboxes name; empty: none.
	Source messages.Address
	// Manifest is the path of the unusable manifest, or of the lost journal of submissions.
	Manifest string
}

// Complete reports whether the snapshot has all pods: every source has reported, and the runtime has been read.
func (s *Snapshot) Complete() bool { return s.Version > 0 && s.Audited && len(s.Unheard) == 0 }

// Board holds the newest snapshot. Safe for concurrent use.
type Board struct {
	mu      sync.Mutex
	now     *Snapshot
	changed chan struct{} // closed at the next change
}

// New is an empty board, at version 0.
func New() *Board { return &Board{now: &Snapshot{}, changed: make(chan struct{})} }

// Publish replaces the snapshot; its version is set here.
func (b *Board) Publish(s Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Version = b.now.Version + 1
	b.now = &s
	close(b.changed)
	b.changed = make(chan struct{})
}

// Now is the newest snapshot.
func (b *Board) Now() *Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// After waits for a snapshot newer than the version, or for the end of ctx.
func (b *Board) After(ctx context.Context, version uint64) (*Snapshot, error) {
	for {
		b.mu.Lock()
		now, changed := b.now, b.changed
		b.mu.Unlock()
		if now.Version > version {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
