package translate

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	maxNameservers   = 3 // resolv.conf(5), MAXNS
	maxSearchDomains = 32
	maxSearchLength  = 2048 // characters, including the spaces between
	// maxSearchDomain is the maximum length of a name; glibc 2.28 aborts above it.
	maxSearchDomain = validation.DNS1123SubdomainMaxLength
)

// DNSFacts is the node's DNS configuration.
type DNSFacts struct {
	ClusterDNS    []string // [clusterDNS], addresses
	ClusterDomain string   // [clusterDomain]
	// Host is the content of the file [resolvConf], see ReadResolvConf.
	Host ResolvConf
	// NoHost is set if resolvConf is "": pods get no outside resolver.
	NoHost bool
	// NodeIPs are the node's addresses.
	NodeIPs []string
}

// DNSWarning describes a part omitted from a pod's DNS configuration; it becomes an event of the pod.
type DNSWarning struct{ Reason, Message string }

// MissingClusterDNS is the reason of a DNSWarning on a node without clusterDNS.
const MissingClusterDNS = "MissingClusterDNS"

// dnsForming is the reason of all other DNSWarnings, the kubelet's.
const dnsForming = "DNSConfigForming"

// NewDNSConfig returns the pod's resolv.conf by its dnsPolicy, with its dnsConfig merged in and cut to the limits of resolvers.
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
		warnings = append(warnings, DNSWarning{MissingClusterDNS, fmt.Sprintf(
			"The node has no clusterDNS, so the pod gets dnsPolicy %q in place of %q.", v1.DNSDefault, v1.DNSClusterFirst)})
		policy = v1.DNSDefault
	}
	switch policy {
	case v1.DNSNone:
		config = &runtimeapi.DNSConfig{}
	case v1.DNSDefault:
		if !pod.Spec.HostNetwork {
			var omitted []DNSWarning
			config.Servers, omitted = withoutZones(config.Servers)
			warnings = append(warnings, omitted...)
		}
		if facts.NoHost {
			config.Servers, config.Searches = localServers(facts.NodeIPs), []string{"."}
		}
	default:
		config.Servers = nil
		for _, server := range facts.ClusterDNS {
			config.Servers = append(config.Servers, canonicalIP(server))
		}
		if domain := facts.ClusterDomain; domain != "" {
			of := []string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}
			config.Searches = unique(append(of, config.Searches...))
		}
		config.Options = []string{"ndots:5"}
	}
	if own := pod.Spec.DNSConfig; own != nil {
		config.Servers = unique(append(config.Servers, own.Nameservers...))
		config.Searches = unique(append(config.Searches, own.Searches...))
		config.Options = mergeOptions(config.Options, own.Options)
	}
	return config, append(warnings, cutToLimits(config)...)
}

// withoutZones omits nameservers with a zone, like fe80::1%eth0 (RFC 4007, 11.2): it names an interface of the node, which a
// pod's own network lacks or has for another one (kubernetes/kubernetes#140880).
func withoutZones(servers []string) (kept []string, warnings []DNSWarning) {
	var omitted []string
	for _, server := range servers {
		if addr, err := netip.ParseAddr(server); err == nil && addr.Zone() != "" {
			omitted = append(omitted, server)
		} else {
			kept = append(kept, server)
		}
	}
	if omitted != nil {
		warnings = []DNSWarning{{dnsForming, "Nameservers of the node that only its own interfaces reach are omitted: " +
			strings.Join(omitted, " ")}}
	}
	return kept, warnings
}

// localServers returns the node itself, once for each of its addresses: the default of resolvers without a server
// (resolv.conf(5)).
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

// canonicalIP returns the address's shortest spelling, as the kubelet writes it.
func canonicalIP(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.String()
	}
	return text
}

func cutToLimits(config *runtimeapi.DNSConfig) []DNSWarning {
	var warnings []DNSWarning
	if len(config.Servers) > maxNameservers {
		config.Servers = config.Servers[:maxNameservers]
		warnings = append(warnings, DNSWarning{dnsForming, fmt.Sprintf(
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
		warnings = append(warnings, DNSWarning{dnsForming, fmt.Sprintf(
			"More or longer search domains than resolvers take; these are used: %s", strings.Join(kept, " "))})
	}
	return warnings
}

// mergeOptions overrides options by the pod's own of the same name.
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

// setOption replaces the option of the same name ("ndots" in "ndots:5") in its place, or appends it.
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

// maxResolvConf limits the size of a resolv.conf in bytes.
const maxResolvConf = 10 << 20

// ResolvConf is the content of a resolver's configuration file (resolv.conf(5)).
type ResolvConf struct {
	Servers, Searches, Options []string
}

// ReadResolvConf reads the file; "" is an empty configuration.
func ReadResolvConf(path string) (conf ResolvConf, err error) {
	if path == "" {
		return ResolvConf{}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return ResolvConf{}, fmt.Errorf("resolver configuration: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if conf, err = ParseResolvConf(file); err != nil {
		return ResolvConf{}, fmt.Errorf("resolver configuration %s: %w", path, err)
	}
	return conf, nil
}

// ResolvConfProblem returns, in the kubelet's words, the first limit of resolvers that the file exceeds together with the search
// domains of a cluster, or the reason that it cannot be read. It returns "" if there is no problem.
func ResolvConfProblem(path, clusterDomain string) string {
	conf, err := ReadResolvConf(path)
	most := maxSearchDomains
	if clusterDomain != "" {
		most -= 3 // for the pod's namespace, for services, and for the cluster
	}
	switch {
	case err != nil:
		return err.Error()
	case len(conf.Searches) > most:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path, most)
	case slices.ContainsFunc(conf.Searches, func(s string) bool { return len(s) > maxSearchDomain }):
		return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", path,
			maxSearchDomain)
	case len(strings.Join(conf.Searches, " ")) > maxSearchLength:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", path,
			maxSearchLength)
	}
	return ""
}

// ParseResolvConf reads nameserver, search, domain and options lines and ignores the rest. Servers add up; the last search line
// counts, and the last option of a name. The domain counts without a search line, as for the machine itself (resolv.conf(5)); a
// kubelet ignores it (kubernetes/kubernetes#110357). Search domains lose their closing dot and "." itself is dropped, so that
// none counts twice against the limits.
func ParseResolvConf(r io.Reader) (ResolvConf, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxResolvConf+1))
	if err != nil {
		return ResolvConf{}, err
	}
	if len(text) > maxResolvConf {
		return ResolvConf{}, fmt.Errorf("more than %d bytes", maxResolvConf)
	}
	var conf ResolvConf
	var domain []string
	searches := false
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				return ResolvConf{}, errors.New("a nameserver line names none")
			}
			conf.Servers = append(conf.Servers, fields[1])
		case "search":
			conf.Searches, searches = searchDomains(fields[1:]), true
		case "domain":
			domain = searchDomains(fields[1:min(len(fields), 2)])
		case "options":
			for _, option := range fields[1:] {
				conf.Options = setOption(conf.Options, option)
			}
		}
	}
	if !searches {
		conf.Searches = domain
	}
	return conf, nil
}

func searchDomains(fields []string) (out []string) {
	for _, domain := range fields {
		if domain != "." {
			out = append(out, strings.TrimSuffix(domain, "."))
		}
	}
	return out
}
