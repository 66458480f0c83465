// Package restarts maps the restart policy of a container onto the supervision strategy of its actor, and retries failed steps of
// the pod itself.
package restarts

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// Strategy returns the supervision strategy of a container's actor by restartPolicy, the container's own rules before its policy,
// and that before the pod's. An init container must succeed. A sidecar (an init container with restartPolicy Always, KEP-753)
// always runs again. A rule to restart all containers (KEP-5532) is no exception to the policy.
func Strategy(pod *v1.Pod, spec *v1.Container, init bool) exits.Strategy {
	if init && translate.RestartsAlways(spec) {
		return exits.Strategy{Restart: exits.Permanent}
	}
	s := exits.Strategy{Restart: exits.Transient, Escalate: init}
	switch policy := translate.RestartPolicy(&pod.Spec, spec); {
	case policy == v1.RestartPolicyNever:
		s.Restart = exits.Temporary
	case policy == v1.RestartPolicyAlways && !init:
		s.Restart = exits.Permanent
	}
	if len(spec.RestartPolicyRules) > 0 && init {
		s.Rules = append(s.Rules, exits.Rule{Codes: []int32{0}, Then: messages.ExitStops})
	}
	for i := range spec.RestartPolicyRules {
		s.Rules = append(s.Rules, exitRule(&spec.RestartPolicyRules[i]))
	}
	return s
}

// exitRule returns a container's rule (KEP-5307) as one of its strategy. A rule without exit codes has no effect.
func exitRule(rule *v1.ContainerRestartRule) (out exits.Rule) {
	if rule.ExitCodes != nil {
		out.Codes, out.Not = rule.ExitCodes.Values, rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn
	}
	if rule.Action == v1.ContainerRestartRuleActionRestart {
		out.Then = messages.ExitRestarts
	}
	return out
}

// Retry is the state of a step that may fail.
type Retry struct {
	Failed *messages.Reason // the last failure; nil: none
	Tries  int              // failures in a row
	At     time.Time        // time of the next try
}

// StepRetry ends with the kubelet's own pause between syncs of a failing pod.
var StepRetry = backoff.Policy{First: time.Second, Max: 10 * time.Second}

// Fails records a failure; the next try comes after a back-off.
func (r *Retry) Fails(now time.Time, why messages.Reason) {
	r.Tries++
	r.At = now.Add(StepRetry.After(r.Tries, 0))
	why.RetryAt, why.Tries = r.At, r.Tries
	r.Failed = &why
}
