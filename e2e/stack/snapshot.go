package stack

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Snapshot is the state of the agent's pods on its admin socket, at one moment.
type Snapshot struct {
	Pods      []PodState `json:"items"`
	NodeState `json:"node"`
}

// NodeState has the fields that concern all pods.
type NodeState struct {
	Problems []Problem `json:"problems"`
	Runtime  struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
		Hints string `json:"hints"` // "events" or "polling"
	} `json:"runtime"`
}

// PodState is one pod.
type PodState struct {
	*corev1.Pod
	AgentState `json:"agent"`
}

// AgentState is the agent's state of a pod.
type AgentState struct {
	Phase   string `json:"phase"`
	Ending  string `json:"ending"`
	Waiting *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"waiting"`
}

// Problem is something wrong in a manifest.
type Problem struct {
	Path, Pod, Field, Message string
	Line                      int
	KeptLast                  bool
}

// Pod gives the pod of that name, nil where there is none.
func (s *Snapshot) Pod(name string) *PodState {
	for i := range s.Pods {
		if s.Pods[i].Pod.Name == name {
			return &s.Pods[i]
		}
	}
	return nil
}

// Snapshot asks the admin socket as `playlet pods` does, but without a process of its own, so that a test may ask often.
func (a *Agent) Snapshot(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{}
	return s, a.Admin(ctx, "/v1/pods", s)
}
