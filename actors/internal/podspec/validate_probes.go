package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func probesOf(c *v1.Container) map[string]*v1.Probe {
	return map[string]*v1.Probe{
		"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe,
	}
}

func (v *validator) probes(c *v1.Container, at *field.Path) {
	probes := probesOf(c)
	for _, name := range sortedKeys(probes) {
		probe, here := probes[name], at.Child(name)
		if probe == nil {
			continue
		}
		v.probe(probe, here)
		switch {
		case name != "readinessProbe" && probe.SuccessThreshold != 1:
			v.invalid(here.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
		case name == "readinessProbe" && probe.TerminationGracePeriodSeconds != nil:
			v.invalid(here.Child("terminationGracePeriodSeconds"), *probe.TerminationGracePeriodSeconds,
				"may not be set: a readiness probe ends nothing")
		}
	}
}

func (v *validator) probe(probe *v1.Probe, at *field.Path) {
	v.action(at, given(probe.ProbeHandler), probe.Exec, probe.HTTPGet, probe.TCPSocket)
	if grpc := probe.GRPC; grpc != nil {
		v.port(at.Child("grpc", "port"), grpc.Port)
		ifSet(&v.checker, at.Child("grpc", "mode"), grpc.Mode, v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS)
	}
	v.atLeast(at.Child("initialDelaySeconds"), int64(probe.InitialDelaySeconds), 0)
	v.atLeast(at.Child("timeoutSeconds"), int64(probe.TimeoutSeconds), 0)
	v.atLeast(at.Child("periodSeconds"), int64(probe.PeriodSeconds), 0)
	v.atLeast(at.Child("successThreshold"), int64(probe.SuccessThreshold), 0)
	v.atLeast(at.Child("failureThreshold"), int64(probe.FailureThreshold), 0)
	if grace := probe.TerminationGracePeriodSeconds; grace != nil {
		v.atLeast(at.Child("terminationGracePeriodSeconds"), *grace, 1)
	}
}

func (v *validator) lifecycle(lifecycle *v1.Lifecycle, at *field.Path) {
	if lifecycle == nil {
		return
	}
	v.hook(lifecycle.PostStart, at.Child("postStart"))
	v.hook(lifecycle.PreStop, at.Child("preStop"))
	v.stopSignal(lifecycle.StopSignal, at.Child("stopSignal"))
}

func (v *validator) hook(hook *v1.LifecycleHandler, at *field.Path) {
	if hook == nil {
		return
	}
	v.action(at, given(*hook), hook.Exec, hook.HTTPGet, hook.TCPSocket)
	grace := v.spec.TerminationGracePeriodSeconds // a pause is a part of it (KEP-3960)
	if hook.Sleep != nil && grace != nil && *grace >= 0 {
		v.between(at.Child("sleep", "seconds"), hook.Sleep.Seconds, 0, *grace)
	}
}

// action checks the action of a probe or a hook, which is exactly one of the given kinds.
func (v *validator) action(at *field.Path, kinds []string, exec *v1.ExecAction, http *v1.HTTPGetAction, tcp *v1.TCPSocketAction) {
	if exec != nil && len(exec.Command) == 0 {
		v.required(at.Child("exec", "command"), "")
	}
	if http != nil {
		v.httpGet(http, at.Child("httpGet"))
	}
	if tcp != nil {
		v.portNumberOrName(at.Child("tcpSocket", "port"), tcp.Port)
	}
	switch {
	case len(kinds) == 0:
		v.required(at, "needs an action")
	case len(kinds) > 1:
		v.forbidden(at, fmt.Sprintf("may do one thing only, has %d", len(kinds)))
	}
}

func (v *validator) httpGet(get *v1.HTTPGetAction, at *field.Path) {
	if get.Path == "" {
		v.required(at.Child("path"), "")
	}
	v.portNumberOrName(at.Child("port"), get.Port)
	oneOf(&v.checker, at.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for i, header := range get.HTTPHeaders {
		v.name(at.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName)
	}
}
