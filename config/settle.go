package config

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/cpuset"
	netutils "k8s.io/utils/net"

	"github.com/playlet-dev/playlet/config/configfile"
)

// settle derives values from flags and files: the node's name and addresses, absolute paths, endpoints in URL form, and the
// taint of --register-schedulable=false.
func (n *Node) settle(hostname func() (string, error)) ([]Warning, error) {
	var warnings []Warning
	name, err := nodeName(n.hostname, hostname)
	if err != nil {
		return nil, err
	}
	n.NodeName = name
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		warnings = append(warnings, Warning{Flag: "--hostname-override", Message: fmt.Sprintf(
			"the node's name %q is not a name the API server takes for a node; give another one", name)})
	}
	if n.NodeIPs, err = parseNodeIPs(n.nodeIP); err != nil {
		return nil, problem("--node-ip", n.nodeIP, "%v", err)
	}
	if n.CloudProvider != "" && n.CloudProvider != "external" {
		warnings = append(warnings, Warning{Flag: "--cloud-provider", Message: fmt.Sprintf(
			"%q is ignored: cloud providers have left Kubernetes; external, with a cloud controller manager, replaces it",
			n.CloudProvider)})
		n.CloudProvider = ""
	}
	if err := n.absolutePaths(); err != nil {
		return nil, err
	}
	for _, endpoint := range []struct {
		field string
		value *string
	}{
		{"containerRuntimeEndpoint", &n.Kubelet.ContainerRuntimeEndpoint},
		{"imageServiceEndpoint", &n.Kubelet.ImageServiceEndpoint},
	} {
		if strings.HasPrefix(*endpoint.value, "/") {
			*endpoint.value = "unix://" + *endpoint.value
			warnings = append(warnings, Warning{Flag: flagOfField(endpoint.field), Message: fmt.Sprintf(
				"a bare path is taken as %q; write it so", *endpoint.value)})
		}
	}
	if !n.schedulable {
		cordon := corev1.Taint{Key: unschedulableTaint, Effect: corev1.TaintEffectNoSchedule}
		is := func(t corev1.Taint) bool { return t.MatchTaint(&cordon) }
		if taints := &n.Kubelet.RegisterWithTaints; !slices.ContainsFunc(*taints, is) {
			*taints = append(*taints, cordon)
		}
	}
	return warnings, nil
}

// absolutePaths resolves relative paths of the command line against the working folder, as opening them would.
func (n *Node) absolutePaths() error {
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("relative paths need a working folder: %w", err)
	}
	for _, field := range configfile.PathFields {
		if path := fieldAt(n.Kubelet, field).(*string); *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(here, *path)
		}
	}
	for _, path := range []*string{&n.RootDir, &n.CertDir, &n.AdminSocket, &n.ObjectDir, &n.LogLinksDir} {
		if *path == "" {
			continue
		}
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(here, *path)
		}
		*path = filepath.Clean(*path)
	}
	return nil
}

// nodeName follows the kubelet: the override if there is one, else the host's name, trimmed and in lower case.
func nodeName(override string, hostname func() (string, error)) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return "", fmt.Errorf("the host's name cannot be determined, give --hostname-override: %w", err)
		}
	}
	trimmed := strings.ToLower(strings.TrimSpace(name))
	if trimmed == "" {
		return "", problem("--hostname-override", name, "the node's name is empty")
	}
	return trimmed, nil
}

// parseNodeIPs reads one address, or two of different families. An unspecified address only chooses a family and so
// stands alone.
func parseNodeIPs(s string) ([]netip.Addr, error) {
	if s == "" {
		return nil, nil
	}
	var addrs []netip.Addr
	for one := range strings.SplitSeq(s, ",") {
		ip := netutils.ParseIPSloppy(strings.TrimSpace(one))
		addr, ok := netip.AddrFromSlice(ip)
		if ip == nil || !ok {
			return nil, fmt.Errorf("%q is not an IP address", one)
		}
		addrs = append(addrs, addr.Unmap())
	}
	switch {
	case len(addrs) == 1:
		return addrs, nil
	case len(addrs) > 2:
		return nil, fmt.Errorf("at most two addresses are possible, one of each family")
	case addrs[0].Is4() == addrs[1].Is4():
		return nil, fmt.Errorf("two addresses have to be of different families")
	case addrs[0].IsUnspecified() || addrs[1].IsUnspecified():
		return nil, fmt.Errorf("an unspecified address cannot be combined with another one")
	}
	return addrs, nil
}

// reserveCPUs replaces the cpu of systemReserved and kubeReserved by the number of reservedSystemCPUs, as the kubelet does.
// The static policy of the CPU manager keeps exclusive containers off these CPUs. Call it after validation.
func (n *Node) reserveCPUs() []Warning {
	const cpu = string(corev1.ResourceCPU)
	c := n.Kubelet
	set, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil || set.IsEmpty() {
		return nil
	}
	_, system := c.SystemReserved[cpu]
	_, kube := c.KubeReserved[cpu]
	c.SystemReserved, c.KubeReserved = maps.Clone(c.SystemReserved), maps.Clone(c.KubeReserved)
	if c.SystemReserved == nil {
		c.SystemReserved = map[string]string{}
	}
	c.SystemReserved[cpu] = strconv.Itoa(set.Size())
	delete(c.KubeReserved, cpu)
	if !system && !kube {
		return nil
	}
	return []Warning{{Flag: "--reserved-cpus", Message: fmt.Sprintf(
		"%s takes the place of the cpu in systemReserved and kubeReserved", c.ReservedSystemCPUs)}}
}
