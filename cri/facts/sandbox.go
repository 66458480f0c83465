package facts

import (
	"net/netip"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// Sandbox returns the fact of a sandbox's full status. A sandbox on the host's network has no IPs of its own, and a sandbox that
// is not ready has lost its IPs. The error wraps ErrForeign.
func Sandbox(status *runtimeapi.PodSandboxStatus) (messages.SandboxFact, error) {
	f, err := describedSandbox(status)
	if err != nil {
		return f, err
	}
	network := status.GetLinux().GetNamespaces().GetOptions()
	f.HostNet = network != nil && network.GetNetwork() == runtimeapi.NamespaceMode_NODE
	if f.Ready && !f.HostNet {
		f.IPs = ipsOf(status.GetNetwork())
		f.NoIP = status.GetNetwork() != nil && status.GetNetwork().GetIp() == ""
	}
	return f, nil
}

// ListedSandbox returns the light fact of an item of ListPodSandbox: it lacks IPs, HostNet and NoIP. The error wraps ErrForeign.
func ListedSandbox(s *runtimeapi.PodSandbox) (messages.SandboxFact, error) {
	return describedSandbox(s)
}

// describedSandbox returns the part of a fact that both a status and a list item have.
func describedSandbox(s interface {
	GetId() string
	GetLabels() map[string]string
	GetMetadata() *runtimeapi.PodSandboxMetadata
	GetState() runtimeapi.PodSandboxState
	GetCreatedAt() int64
	GetAnnotations() map[string]string
	GetRuntimeHandler() string
}) (messages.SandboxFact, error) {
	if err := identity("sandbox", s.GetId(), s.GetLabels(), s.GetMetadata() != nil); err != nil {
		return messages.SandboxFact{}, err
	}
	return messages.SandboxFact{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: timeOf(s.GetCreatedAt()), PodStarted: startedOf(s.GetAnnotations()),
		Source: s.GetAnnotations()[sourceAnnotation], Handler: s.GetRuntimeHandler(),
	}, nil
}

// sourceAnnotation is set by the kubelet on every pod, and so on its sandboxes.
const sourceAnnotation = "kubernetes.io/config.source"

// startedOf returns the pod's start time from its sandbox's annotation, or zero if it is missing or invalid.
func startedOf(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, annotations[cri.AnnotationPodStarted])
	if err != nil {
		return time.Time{}
	}
	return t
}

// ipsOf lists the addresses, the primary one first. An invalid address ends the list, since the primary address is uncertain
// then.
func ipsOf(n *runtimeapi.PodSandboxNetworkStatus) []string {
	all := []string{n.GetIp()}
	for _, more := range n.GetAdditionalIps() {
		all = append(all, more.GetIp())
	}
	var out []string
	for _, ip := range all {
		if _, err := netip.ParseAddr(ip); err != nil {
			break
		}
		out = append(out, ip)
	}
	return out
}
