// Package stoporder decides in which order the containers of an ending pod are stopped. It is pure.
package stoporder

import (
	"slices"
	"time"
)

// LeastGrace is the grace period of a sidecar if the containers before it have used up the pod's (KEP-753).
const LeastGrace = 2 * time.Second

// Container is a container that may still run.
type Container struct {
	Sidecar bool
	Begun   bool // it is being stopped
}

// Step is the next step for one container.
type Step struct {
	Index int // of the container
	Grace time.Duration
	// HookOnly means that the container waits for its turn, and only its pre-stop hook runs.
	HookOnly bool
}

// Next returns the steps for containers, which are in the order of the pod's spec. Main containers are stopped side by side
// within grace. Sidecars are stopped one after another, in reverse order, within the rest of the pod's grace period; their
// pre-stop hooks run from the beginning. After the grace period, sidecars no longer wait for one another (KEP-753). They still
// wait for the main containers, which the runtime kills at about that time, or later if it was away. others means that a main
// container may run that is not listed.
func Next(containers []Container, grace, rest time.Duration, others bool) (steps []Step) {
	for i, c := range containers {
		if !c.Sidecar {
			steps = append(steps, Step{Index: i, Grace: grace})
			others = true
		}
	}
	left := others
	for i, c := range slices.Backward(containers) {
		switch {
		case !c.Sidecar:
			continue
		case c.Begun, !left, !others && rest <= 0:
			steps = append(steps, Step{Index: i, Grace: max(rest, LeastGrace)})
		case rest > 0:
			steps = append(steps, Step{Index: i, Grace: rest, HookOnly: true})
		}
		left = true
	}
	return steps
}
