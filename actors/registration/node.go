package registration

import (
	"maps"
	"net/netip"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names on Node objects that other components read.
const (
	labelBetaOS   = "beta.kubernetes.io/os"
	labelBetaArch = "beta.kubernetes.io/arch"
	// annotationAttachDetach marks a node that the attach/detach controller serves.
	annotationAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	// annotationNodeIP gives a cloud controller manager the addresses of --node-ip.
	annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"
	// taintUninitialized keeps pods away until a cloud controller manager has completed the Node.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// initial returns the Node to create, without its status.
func (w NodeConfig) initial() *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Annotations: map[string]string{}, Labels: map[string]string{
			v1.LabelHostname: w.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
			labelBetaOS: runtime.GOOS, labelBetaArch: runtime.GOARCH,
		}},
		Spec: v1.NodeSpec{ProviderID: w.ProviderID},
	}
	maps.Copy(node.Labels, w.Labels)
	for _, t := range w.Taints {
		node.Spec.Taints = append(node.Spec.Taints, *t.DeepCopy())
	}
	if w.ExternalCloud {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: taintUninitialized, Value: "true",
			Effect: v1.TaintEffectNoSchedule})
	}
	if w.AttachDetach {
		node.Annotations[annotationAttachDetach] = "true"
	}
	w.annotateIPs(node)
	return node
}

// annotateIPs sets or removes annotationNodeIP.
func (w NodeConfig) annotateIPs(node *v1.Node) {
	if !w.ExternalCloud || len(w.NodeIPs) == 0 {
		delete(node.Annotations, annotationNodeIP)
		return
	}
	texts := make([]string, 0, len(w.NodeIPs))
	for _, ip := range w.NodeIPs {
		texts = append(texts, ip.String())
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[annotationNodeIP] = strings.Join(texts, ",")
}

// reconciledLabels are the labels that an agent also sets on an existing Node, the kubelet's list. All others are set once, when
// the Node is created.
var reconciledLabels = []string{
	v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
	v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType, v1.LabelOSStable, v1.LabelArchStable, labelBetaOS, labelBetaArch,
}

// reconciled returns the Node with the agent's own metadata, and does not change was. first means that the agent observes this
// Node for the first time. Later only the metadata that schedulers need is restored, as with the kubelet.
func (w NodeConfig) reconciled(was *v1.Node, first bool) *v1.Node {
	node := was.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[v1.LabelOSStable], node.Labels[v1.LabelArchStable] = runtime.GOOS, runtime.GOARCH
	w.annotateIPs(node)
	if !first || !w.Register {
		return node
	}
	wanted := w.initial()
	for _, name := range reconciledLabels {
		value, ok := wanted.Labels[name]
		switch {
		case ok && value == "":
			delete(node.Labels, name)
		case ok:
			node.Labels[name] = value
		}
	}
	if w.AttachDetach {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[annotationAttachDetach] = "true"
	} else {
		delete(node.Annotations, annotationAttachDetach)
	}
	return node
}

// hostIPs returns the node's addresses for pod statuses, in the kubelet's order: the Node's first address, internal before
// external ones, and the first address of the other family.
func hostIPs(node *v1.Node) []string {
	if node == nil {
		return nil
	}
	var out []netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err == nil && a.Type == kind && (len(out) == 0 || len(out) == 1 && out[0].Is4() != ip.Is4()) {
				out = append(out, ip)
			}
		}
	}
	texts := make([]string, 0, len(out))
	for _, ip := range out {
		texts = append(texts, ip.String())
	}
	return texts
}

// addresses returns the Node's addresses. Addresses set by a cloud controller manager stay.
func (w NodeConfig) addresses(was []v1.NodeAddress, ips []netip.Addr) []v1.NodeAddress {
	host := v1.NodeAddress{Type: v1.NodeHostName, Address: w.Name}
	switch {
	case w.ExternalCloud && len(was) > 0:
		return was
	case w.ExternalCloud && len(w.NodeIPs) == 0 && !w.AnyIP:
		return []v1.NodeAddress{host} // the cloud controller manager sets the others
	case len(ips) == 0:
		return was // unknown at present
	}
	out := make([]v1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, host)
}
