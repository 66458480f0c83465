// Package restarts decides the consequence of the end of a container, by restartPolicy and the kubelet's back-off, and the retry
// of failed steps of the pod itself.
package restarts

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	retries "github.com/playlet-dev/playlet/supervisors/backoff"
)

// Answer is the consequence of the end of a container by restartPolicy.
type Answer int

// The answers.
const (
	Again   Answer = iota // start it again, after back-off
	Leave                 // it is done, and stays ended
	FailPod               // it is done, and the pod has failed with it
)

// ByPolicy returns the consequence of the end of a container by restartPolicy, its own rules before the pod's. An init container
// must succeed. A sidecar (an init container with restartPolicy Always, KEP-753) never ends for good.
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

// BackOff is the kubelet's back-off between a container's end and its next start. The first restart is immediate. Then the wait
// is Base, doubling to Max, counted from the end. It is reset after twice Max without a restart.
type BackOff struct {
	Base, Max time.Duration
}

// Place is one container's position in the back-off.
type Place struct {
	Step int       // restarts since the last reset
	Last time.Time // time of the last one
}

// Wait returns the wait after an end.
func (p BackOff) Wait(step int) time.Duration {
	if step <= 0 {
		return 0
	}
	return retries.Policy{First: p.Base, Max: p.Max}.After(step, 0)
}

// After returns when a container that ended at the given time may start again. A clock that was set back extends no wait.
func (p BackOff) After(now time.Time, b Place, ended time.Time) time.Time {
	if b.Step == 0 || p.expired(b, ended) {
		return now
	}
	return now.Add(min(ended.Sub(now), 0) + p.Wait(b.Step))
}

// Next returns the position after a restart now of a container that ended at the given time.
func (p BackOff) Next(b Place, ended, now time.Time) Place {
	if p.expired(b, ended) {
		return Place{Step: 1, Last: now}
	}
	return Place{Step: b.Step + 1, Last: now}
}

func (p BackOff) expired(b Place, ended time.Time) bool {
	return b.Step > 0 && ended.Sub(b.Last) > 2*p.Max
}

// Retry is the state of a step that may fail.
type Retry struct {
	Failed *messages.Reason // the last failure; nil: none
	Tries  int              // failures in a row
	At     time.Time        // time of the next try
}

// StepRetry ends with the kubelet's own pause between syncs of a failing pod.
var StepRetry = retries.Policy{First: time.Second, Max: 10 * time.Second}

// Fails records a failure; the next try comes after a back-off.
func (r *Retry) Fails(now time.Time, why messages.Reason) {
	r.Tries++
	r.At = now.Add(StepRetry.After(r.Tries, 0))
	why.RetryAt, why.Tries = r.At, r.Tries
	r.Failed = &why
}
