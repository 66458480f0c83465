package translate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The first rule that matches the exit code counts. If it restarts all containers, it restarts no single one.
func TestRestartRules(t *testing.T) {
	const one, all = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	rule := func(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for name, c := range map[string]struct {
		rules    []v1.ContainerRestartRule
		policy   v1.ContainerRestartPolicy
		code     int32
		one, all bool
	}{
		"no rule":        {nil, v1.ContainerRestartPolicyNever, 42, false, false},
		"all":            {[]v1.ContainerRestartRule{rule(all, in, 1, 42)}, v1.ContainerRestartPolicyNever, 42, false, true},
		"another code":   {[]v1.ContainerRestartRule{rule(all, in, 1, 42)}, v1.ContainerRestartPolicyNever, 2, false, false},
		"by the policy":  {[]v1.ContainerRestartRule{rule(all, in, 42)}, v1.ContainerRestartPolicyOnFailure, 2, true, false},
		"not in":         {[]v1.ContainerRestartRule{rule(all, notIn, 0)}, v1.ContainerRestartPolicyNever, 2, false, true},
		"one before all": {[]v1.ContainerRestartRule{rule(one, in, 42), rule(all, in, 42)}, v1.ContainerRestartPolicyNever, 42, true, false},
		"all before one": {[]v1.ContainerRestartRule{rule(all, in, 42), rule(one, in, 42)}, v1.ContainerRestartPolicyNever, 42, false, true},
		"no codes":       {[]v1.ContainerRestartRule{{Action: all}}, v1.ContainerRestartPolicyNever, 42, false, false},
	} {
		spec := &v1.Container{RestartPolicy: &c.policy, RestartPolicyRules: c.rules}
		if got := Restarts(&v1.PodSpec{}, spec, c.code); got != c.one {
			t.Errorf("%s: restarted by itself: %v", name, got)
		}
		if got := RestartsAll(spec, c.code); got != c.all {
			t.Errorf("%s: restarts all: %v", name, got)
		}
	}
}
