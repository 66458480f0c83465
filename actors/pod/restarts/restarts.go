// Package restarts says what follows the end of a container, by restartPolicy and by the kubelet's back-off, and when a step of
// the pod's own that failed is tried again.
package restarts

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	retries "github.com/playlet-dev/playlet/supervisors/backoff"
)

// Answer is what restartPolicy says about the end of a container.
type Answer int

// The answers.
const (
	Again   Answer = iota // start it again, after back-off
	Leave                 // it is done; leave it ended
	FailPod               // it is done, and the pod has failed with it
)

// ByPolicy is what follows the end of a container by restartPolicy, its own rules before the pod's. An init container must
// succeed; a sidecar (an init container with restartPolicy Always, KEP-753) never ends for good.
func ByPolicy(pod *v1.Pod, spec *v1.Container, init bool, f messages.ContainerFact) Answer {
	sidecar, again := init && translate.RestartsAlways(spec), translate.Restarts(&pod.Spec, spec, f.ExitCode)
	switch {
	case sidecar:
		return Again
	case init && f.ExitCode == 0:
		return Leave
	case init && !again:
		return FailPod
	case again:
		return Again
	default:
		return Leave
	}
}

// BackOff is the kubelet's back-off between a container's end and its next start: at once the first time, then Base
// doubling to Max, counted from the end, forgotten after twice Max without a restart.
type BackOff struct {
	Base, Max time.Duration
}

// Place is one container's place in it.
type Place struct {
	Step int       // restarts so far, since it was last forgotten
	Last time.Time // when the last one was
}

// Wait is how long the container is held back after an end.
func (p BackOff) Wait(step int) time.Duration {
	if step <= 0 {
		return 0
	}
	return retries.Policy{First: p.Base, Max: p.Max}.After(step, 0)
}

// After is when a container that ended at the given time may start again. A clock that was set back lengthens no wait.
func (p BackOff) After(now time.Time, b Place, ended time.Time) time.Time {
	if b.Step == 0 || p.expired(b, ended) {
		return now
	}
	return now.Add(min(ended.Sub(now), 0) + p.Wait(b.Step))
}

// Next is the back-off after a restart now of a container that ended at the given time.
func (p BackOff) Next(b Place, ended, now time.Time) Place {
	if p.expired(b, ended) {
		return Place{Step: 1, Last: now}
	}
	return Place{Step: b.Step + 1, Last: now}
}

func (p BackOff) expired(b Place, ended time.Time) bool {
	return b.Step > 0 && ended.Sub(b.Last) > 2*p.Max
}

// Retry is what is known of a step that may fail.
type Retry struct {
	Failed *messages.Reason // the last time; nil: it did not
	Tries  int              // failures in a row
	At     time.Time        // when it is tried again
}

// StepRetry ends with the kubelet's own pause between syncs of a failing pod.
var StepRetry = retries.Policy{First: time.Second, Max: 10 * time.Second}

// Fails notes a failure; the next try comes after a back-off.
func (r *Retry) Fails(now time.Time, why messages.Reason) {
	r.Tries++
	r.At = now.Add(StepRetry.After(r.Tries, 0))
	why.RetryAt, why.Tries = r.At, r.Tries
	r.Failed = &why
}
