package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of KEP-5307 and KEP-5532.
const (
	maxRestartRules     = 20
	maxExitCodesPerRule = 255
)

// containerRestartPolicy checks what a container says instead of the pod about its restarts (KEP-5307).
func (v *validator) containerRestartPolicy(c *v1.Container, at *field.Path) {
	if c.RestartPolicy == nil {
		if len(c.RestartPolicyRules) > 0 {
			v.required(at.Child("restartPolicy"), "restartPolicyRules need it")
		}
		return
	}
	oneOf(&v.checker, at.Child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways,
		v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)
	rules := at.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) > maxRestartRules {
		v.add(field.TooMany(rules, len(c.RestartPolicyRules), maxRestartRules))
	}
	for i, rule := range c.RestartPolicyRules {
		v.restartRule(rule, rules.Index(i))
	}
}

func (v *validator) restartRule(rule v1.ContainerRestartRule, at *field.Path) {
	v.needs(at, "action", string(rule.Action))
	codes := at.Child("exitCodes")
	if rule.ExitCodes == nil {
		v.required(codes, "")
		return
	}
	oneOf(&v.checker, codes.Child("operator"), rule.ExitCodes.Operator,
		v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
	if n := len(rule.ExitCodes.Values); n > maxExitCodesPerRule {
		v.add(field.TooMany(codes.Child("values"), n, maxExitCodesPerRule))
	}
}

// resizePolicy checks how a container takes a change of its resources (KEP-1287).
func (v *validator) resizePolicy(policies []v1.ContainerResizePolicy, at *field.Path) {
	seen := map[string]bool{}
	for i, policy := range policies {
		here := at.Index(i)
		v.unique(here.Child("resourceName"), seen, string(policy.ResourceName))
		oneOf(&v.checker, here.Child("resourceName"), policy.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		oneOf(&v.checker, here.Child("restartPolicy"), policy.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if v.spec.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy == v1.RestartContainer {
			v.invalid(here.Child("restartPolicy"), policy.RestartPolicy,
				fmt.Sprintf("must be %s in a pod whose restartPolicy is Never", v1.NotRequired))
		}
	}
}
