package podspec

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/cri/translate"
)

func (v *validator) containers(spec *field.Path) {
	if len(v.spec.Containers) == 0 {
		v.required(spec.Child("containers"), "a pod needs at least one container")
	}
	names := map[string]bool{}
	hostPorts := map[string]bool{}
	regular := spec.Child("containers")
	for i := range v.spec.Containers {
		c, at := &v.spec.Containers[i], regular.Index(i)
		v.container(c, at)
		v.unique(at.Child("name"), names, c.Name)
		v.hostPorts(c.Ports, at.Child("ports"), hostPorts)
		v.lifecycle(c.Lifecycle, at.Child("lifecycle"))
		v.probes(c, at)
		v.containerRestartPolicy(c, at)
	}
	for i := range v.spec.InitContainers {
		c, at := &v.spec.InitContainers[i], spec.Child("initContainers").Index(i)
		v.container(c, at)
		v.unique(at.Child("name"), names, c.Name)
		v.initContainer(c, at)
	}
}

// container checks the common fields of all kinds of containers.
func (v *validator) container(c *v1.Container, at *field.Path) {
	v.label(at.Child("name"), c.Name)
	v.needs(at, "image", c.Image)
	if strings.TrimSpace(c.Image) != c.Image {
		v.invalid(at.Child("image"), c.Image, "must have no space before or after it")
	}
	oneOf(&v.checker, at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(&v.checker, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.ports(c.Ports, at.Child("ports"))
	v.env(c.Env, at.Child("env"))
	v.envFrom(c.EnvFrom, at.Child("envFrom"))
	v.volumeMounts(c, at.Child("volumeMounts"))
	v.volumeDevices(c, at.Child("volumeDevices"))
	v.resources(&c.Resources, at.Child("resources"))
	v.resizePolicy(c.ResizePolicy, at.Child("resizePolicy"))
	v.containerSecurity(c.SecurityContext, at.Child("securityContext"))
}

func (v *validator) initContainer(c *v1.Container, at *field.Path) {
	v.containerRestartPolicy(c, at)
	// Init containers run one at a time, so their ports only conflict within one.
	v.hostPorts(c.Ports, at.Child("ports"), map[string]bool{})
	if translate.RestartsAlways(c) {
		v.lifecycle(c.Lifecycle, at.Child("lifecycle"))
		v.probes(c, at)
		return
	}
	const why = "an init container may have it only with restartPolicy Always"
	if c.Lifecycle != nil {
		v.forbidden(at.Child("lifecycle"), why)
	}
	probes := probesOf(c)
	for _, name := range sortedKeys(probes) {
		if probes[name] != nil {
			v.forbidden(at.Child(name), why)
		}
	}
	for i, policy := range c.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			v.invalid(at.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy, why)
		}
	}
}

// Limits of KEP-5307 and KEP-5532.
const (
	maxRestartRules     = 20
	maxExitCodesPerRule = 255
)

// containerRestartPolicy checks a container's own restart policy and rules (KEP-5307).
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
	v.atMost(rules, len(c.RestartPolicyRules), maxRestartRules)
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
	v.atMost(codes.Child("values"), len(rule.ExitCodes.Values), maxExitCodesPerRule)
}

// resizePolicy checks a container's reaction to a change of its resources (KEP-1287).
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

// stopSignals are the valid stop signals on Linux (KEP-4960).
var stopSignals = slices.Concat([]v1.Signal{
	v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP, v1.SIGILL, v1.SIGINT,
	v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF, v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV,
	v1.SIGSTKFLT, v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP, v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG,
	v1.SIGUSR1, v1.SIGUSR2, v1.SIGVTALRM, v1.SIGWINCH, v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX,
}, numbered("SIGRTMIN+", 15), numbered("SIGRTMAX-", 14))

func numbered(prefix string, last int) []v1.Signal {
	var signals []v1.Signal
	for i := 1; i <= last; i++ {
		signals = append(signals, v1.Signal(fmt.Sprintf("%s%d", prefix, i)))
	}
	return signals
}

// stopSignal checks a signal. The pod must name its operating system, since the signals of Windows differ.
func (v *validator) stopSignal(signal *v1.Signal, at *field.Path) {
	if signal == nil {
		return
	}
	if v.spec.OS == nil {
		v.forbidden(at, "needs spec.os.name")
		return
	}
	ifSet(&v.checker, at, signal, stopSignals...)
}
