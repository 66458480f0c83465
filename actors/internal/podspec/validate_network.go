package podspec

import (
	"fmt"
	"net"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Limits of the resolvers of C libraries (resolv.conf(5)).
const (
	maxNameservers   = 3
	maxSearches      = 32
	maxSearchesBytes = 2048
	// maxHostname is the kernel's limit (sethostname(2)).
	maxHostname = 64
)

func (v *validator) network(spec *field.Path) {
	oneOf(&v.checker, spec.Child("dnsPolicy"), v.spec.DNSPolicy,
		v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	v.dnsConfig(spec.Child("dnsConfig"))
	for i, alias := range v.spec.HostAliases {
		at := spec.Child("hostAliases").Index(i)
		v.ip(at.Child("ip"), alias.IP)
		for j, hostname := range alias.Hostnames {
			v.subdomain(at.Child("hostnames").Index(j), hostname)
		}
	}
	if v.spec.Hostname != "" {
		v.label(spec.Child("hostname"), v.spec.Hostname)
	}
	if v.spec.Subdomain != "" {
		v.label(spec.Child("subdomain"), v.spec.Subdomain)
	}
	v.hostnameOverride(spec.Child("hostnameOverride"))
}

func (v *validator) ip(at *field.Path, value string) {
	if net.ParseIP(value) == nil {
		v.invalid(at, value, "must be an IP address, such as 10.9.8.7 or 2001:db8::ffff")
	}
}

func (v *validator) dnsConfig(at *field.Path) {
	config := v.spec.DNSConfig
	if v.spec.DNSPolicy == v1.DNSNone && (config == nil || len(config.Nameservers) == 0) {
		v.required(at.Child("nameservers"), "dnsPolicy None needs at least one")
	}
	if config == nil {
		return
	}
	v.atMost(at.Child("nameservers"), len(config.Nameservers), maxNameservers)
	for i, server := range config.Nameservers {
		v.ip(at.Child("nameservers").Index(i), server)
	}
	v.atMost(at.Child("searches"), len(config.Searches), maxSearches)
	if n := len(strings.Join(config.Searches, " ")); n > maxSearchesBytes {
		v.add(field.TooLong(at.Child("searches"), "", maxSearchesBytes))
	}
	for i, search := range config.Searches {
		if search != "." {
			v.name(at.Child("searches").Index(i), strings.TrimSuffix(search, "."),
				validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			v.required(at.Child("options").Index(i).Child("name"), "")
		}
	}
}

// hostnameOverride checks KEP-4762.
func (v *validator) hostnameOverride(at *field.Path) {
	name := v.spec.HostnameOverride
	if name == nil {
		return
	}
	if ptr.Deref(v.spec.SetHostnameAsFQDN, false) {
		v.forbidden(at, "may not be set beside setHostnameAsFQDN")
	}
	if v.spec.HostNetwork {
		v.forbidden(at, "a pod on the host's network has the host's name")
	}
	if len(*name) > maxHostname {
		v.invalid(at, *name, fmt.Sprintf("must have %d characters at most", maxHostname))
	}
	v.subdomain(at, *name)
}

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

// hostPorts finds duplicate ports of the node among concurrent containers; taken carries the ports from one container to the
// next.
func (v *validator) hostPorts(ports []v1.ContainerPort, at *field.Path, taken map[string]bool) {
	for i, port := range ports {
		if port.HostPort != 0 {
			use := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			v.unique(at.Index(i).Child("hostPort"), taken, use)
		}
	}
}

// portNumberOrName checks a port of a probe or hook, which may be the name of a container's port.
func (v *validator) portNumberOrName(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		v.port(at, port.IntVal)
		return
	}
	v.invalid(at, port.StrVal, validation.IsValidPortName(port.StrVal)...)
}
