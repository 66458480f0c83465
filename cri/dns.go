package cri

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	maxNameservers   = 3 // resolv.conf(5), MAXNS
	maxSearchDomains = 32
	maxSearchLength  = 2048 // characters, with the spaces between
	// maxSearchDomain is what a name can have; glibc 2.28 aborts at more.
	maxSearchDomain = validation.DNS1123SubdomainMaxLength
)

// DNSFacts is what the node knows of name servers.
type DNSFacts struct {
	ClusterDNS    []string // [clusterDNS], addresses
	ClusterDomain string   // [clusterDomain]
	// Host is what the file [resolvConf] holds, see ReadResolvConf.
	Host ResolvConf
	// NoHost says that resolvConf is set to "": pods get no outside resolver.
	NoHost bool
	// NodeIPs are the node's addresses.
	NodeIPs []string
}

// DNSWarning is something that was left out of a pod's DNS configuration; it
// becomes an event of the pod.
type DNSWarning struct{ Reason, Message string }

// NewDNSConfig is the pod's resolv.conf by its dnsPolicy, with its dnsConfig
// merged in and cut to what resolvers take.
func NewDNSConfig(pod *v1.Pod, facts DNSFacts) (*runtimeapi.DNSConfig, []DNSWarning) {
	var warnings []DNSWarning
	config := &runtimeapi.DNSConfig{
		Servers:  append([]string{}, facts.Host.Servers...),
		Searches: append([]string{}, facts.Host.Searches...),
		Options:  append([]string{}, facts.Host.Options...),
	}
	policy := pod.Spec.DNSPolicy
	if policy == v1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = v1.DNSDefault
	}
	if policy != v1.DNSNone && policy != v1.DNSDefault && len(facts.ClusterDNS) == 0 {
		warnings = append(warnings, DNSWarning{"MissingClusterDNS", fmt.Sprintf(
			"The node has no clusterDNS, so the pod gets dnsPolicy %q in place of %q.", v1.DNSDefault, v1.DNSClusterFirst)})
		policy = v1.DNSDefault
	}
	switch policy {
	case v1.DNSNone:
		config = &runtimeapi.DNSConfig{}
	case v1.DNSDefault:
		if facts.NoHost {
			config.Servers, config.Searches = localServers(facts.NodeIPs), []string{"."}
		}
	default:
		config.Servers = nil
		for _, server := range facts.ClusterDNS {
			config.Servers = append(config.Servers, canonicalIP(server))
		}
		config.Searches = clusterSearches(pod.Namespace, facts.ClusterDomain, config.Searches)
		config.Options = []string{"ndots:5"}
	}
	if own := pod.Spec.DNSConfig; own != nil {
		config.Servers = unique(append(config.Servers, own.Nameservers...))
		config.Searches = unique(append(config.Searches, own.Searches...))
		config.Options = mergeOptions(config.Options, own.Options)
	}
	return config, append(warnings, cutToLimits(config)...)
}

// localServers is the node itself, once for each of its addresses: what
// resolvers take when no server is named at all (resolv.conf(5)).
func localServers(nodeIPs []string) []string {
	var servers []string
	for _, ip := range nodeIPs {
		if strings.Contains(ip, ":") {
			servers = append(servers, "::1")
		} else {
			servers = append(servers, "127.0.0.1")
		}
	}
	if servers == nil {
		servers = []string{"127.0.0.1"}
	}
	return servers
}

// canonicalIP is the address's shortest spelling, as the kubelet writes it.
func canonicalIP(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.String()
	}
	return text
}

func clusterSearches(namespace, domain string, host []string) []string {
	if domain == "" {
		return host
	}
	return unique(append([]string{namespace + ".svc." + domain, "svc." + domain, domain}, host...))
}

func cutToLimits(config *runtimeapi.DNSConfig) []DNSWarning {
	const reason = "DNSConfigForming"
	var warnings []DNSWarning
	if len(config.Servers) > maxNameservers {
		config.Servers = config.Servers[:maxNameservers]
		warnings = append(warnings, DNSWarning{reason, fmt.Sprintf(
			"More than %d nameservers; these are used: %s", maxNameservers, strings.Join(config.Servers, " "))})
	}
	given := len(config.Searches)
	var kept []string
	length := 0
	for _, search := range config.Searches[:min(given, maxSearchDomains)] {
		if len(search) > maxSearchDomain {
			continue
		}
		if length += len(search) + 1; length-1 > maxSearchLength {
			break
		}
		kept = append(kept, search)
	}
	config.Searches = kept
	if len(kept) < given {
		warnings = append(warnings, DNSWarning{reason, fmt.Sprintf(
			"More or longer search domains than resolvers take; these are used: %s", strings.Join(kept, " "))})
	}
	return warnings
}

// mergeOptions lets the pod's options override those of the same name.
func mergeOptions(options []string, own []v1.PodDNSConfigOption) []string {
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		options = setOption(options, text)
	}
	return options
}

// setOption replaces the option of the same name ("ndots" in "ndots:5") in its
// place, or appends it.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i := range options {
		if n, _, _ := strings.Cut(options[i], ":"); n == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

func unique(list []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
