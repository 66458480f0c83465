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
	v.action(at, &action{exec: probe.Exec, http: probe.HTTPGet, tcp: probe.TCPSocket, grpc: probe.GRPC})
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
	hook := func(handler *v1.LifecycleHandler, at *field.Path) {
		if handler != nil {
			v.action(at, &action{
				exec: handler.Exec, http: handler.HTTPGet, tcp: handler.TCPSocket, sleep: handler.Sleep,
			})
		}
	}
	hook(lifecycle.PostStart, at.Child("postStart"))
	hook(lifecycle.PreStop, at.Child("preStop"))
	v.stopSignal(lifecycle.StopSignal, at.Child("stopSignal"))
}

// action is what a probe or a hook does: exactly one of these.
type action struct {
	exec  *v1.ExecAction
	http  *v1.HTTPGetAction
	tcp   *v1.TCPSocketAction
	grpc  *v1.GRPCAction
	sleep *v1.SleepAction
}

func (v *validator) action(at *field.Path, a *action) {
	given := 0
	if a.exec != nil {
		given++
		if len(a.exec.Command) == 0 {
			v.required(at.Child("exec", "command"), "")
		}
	}
	if a.http != nil {
		given++
		v.httpGet(a.http, at.Child("httpGet"))
	}
	if a.tcp != nil {
		given++
		v.portNumberOrName(at.Child("tcpSocket", "port"), a.tcp.Port)
	}
	if a.grpc != nil {
		given++
		v.port(at.Child("grpc", "port"), a.grpc.Port)
		ifSet(&v.checker, at.Child("grpc", "mode"), a.grpc.Mode, v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS)
	}
	if a.sleep != nil {
		given++
		v.sleep(a.sleep, at.Child("sleep", "seconds"))
	}
	switch {
	case given == 0:
		v.required(at, "says nothing to do")
	case given > 1:
		v.forbidden(at, fmt.Sprintf("may do one thing only, has %d", given))
	}
}

// sleep checks a pause against the grace period that it is a part of (KEP-3960).
func (v *validator) sleep(sleep *v1.SleepAction, at *field.Path) {
	if grace := v.spec.TerminationGracePeriodSeconds; grace != nil && *grace >= 0 {
		v.between(at, sleep.Seconds, 0, *grace)
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
