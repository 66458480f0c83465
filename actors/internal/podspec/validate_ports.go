package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const maxPort = 65535

func (v *validator) port(at *field.Path, number int32) { v.between(at, int64(number), 1, maxPort) }

func (v *validator) ports(ports []v1.ContainerPort, at *field.Path) {
	names := map[string]bool{}
	for i, port := range ports {
		here := at.Index(i)
		if port.Name != "" {
			v.invalid(here.Child("name"), port.Name, validation.IsValidPortName(port.Name)...)
			v.unique(here.Child("name"), names, port.Name)
		}
		if port.ContainerPort == 0 {
			v.required(here.Child("containerPort"), "")
		} else {
			v.port(here.Child("containerPort"), port.ContainerPort)
		}
		if port.HostPort != 0 {
			v.port(here.Child("hostPort"), port.HostPort)
		}
		if v.spec.HostNetwork && port.HostPort != port.ContainerPort {
			v.invalid(here.Child("hostPort"), port.HostPort, "must equal containerPort on the host's network")
		}
		if port.HostIP != "" {
			v.ip(here.Child("hostIP"), port.HostIP)
		}
		oneOf(&v.checker, here.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

// hostPorts finds two uses of one port of the node among containers that run at the same time; taken carries the
// uses from one container to the next.
func (v *validator) hostPorts(ports []v1.ContainerPort, at *field.Path, taken map[string]bool) {
	for i, port := range ports {
		if port.HostPort != 0 {
			use := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			v.unique(at.Index(i).Child("hostPort"), taken, use)
		}
	}
}

// portNumberOrName checks a port of a probe or hook, which may name a port of the container.
func (v *validator) portNumberOrName(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		v.port(at, port.IntVal)
		return
	}
	v.invalid(at, port.StrVal, validation.IsValidPortName(port.StrVal)...)
}
