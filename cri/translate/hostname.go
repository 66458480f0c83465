package translate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/playlet-dev/playlet/messages"
)

const (
	maxHostname = 63 // the kernel's limit for a hostname is 64 bytes
	maxFQDN     = 64 // the kubelet's limit for a name with its domain
)

// HostnameAndDomain returns the pod's short hostname and its domain inside the cluster ("" without a subdomain), as /etc/hosts
// shows them. A long hostname is cut, and never ends with '-' or '.'.
func HostnameAndDomain(pod *v1.Pod, clusterDomain string) (hostname, domain string, err error) {
	if o := pod.Spec.HostnameOverride; o != nil {
		if wrong := validation.IsDNS1123Subdomain(*o); len(wrong) > 0 {
			return "", "", fmt.Errorf("hostnameOverride %q: %s", *o, strings.Join(wrong, "; "))
		}
		hostname, err = cutHostname(*o)
		return hostname, "", err
	}
	hostname = pod.Name
	if h := pod.Spec.Hostname; h != "" {
		if wrong := validation.IsDNS1123Label(h); len(wrong) > 0 {
			return "", "", fmt.Errorf("hostname %q: %s", h, strings.Join(wrong, "; "))
		}
		hostname = h
	}
	if hostname, err = cutHostname(hostname); err != nil {
		return "", "", err
	}
	if s := pod.Spec.Subdomain; s != "" {
		if wrong := validation.IsDNS1123Label(s); len(wrong) > 0 {
			return "", "", fmt.Errorf("subdomain %q: %s", s, strings.Join(wrong, "; "))
		}
		domain = s + "." + pod.Namespace + ".svc." + clusterDomain
	}
	return hostname, domain, nil
}

func cutHostname(hostname string) (string, error) {
	if len(hostname) <= maxHostname {
		return hostname, nil
	}
	short := strings.TrimRight(hostname[:maxHostname], "-.")
	if short == "" {
		return "", fmt.Errorf("hostname %q has no beginning that could be used", hostname)
	}
	return short, nil
}

// FQDNError reports that a pod's FQDN is too long for a hostname.
type FQDNError struct{ FQDN string }

// Error implements error. Kubernetes' suites match the words before the name.
func (e *FQDNError) Error() string {
	return fmt.Sprintf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s has %d characters, %d are allowed",
		e.FQDN, len(e.FQDN), maxFQDN)
}

// Cause implements messages.CauseError.
func (e *FQDNError) Cause() messages.Cause {
	return messages.Cause{Code: messages.CauseFQDNTooLong, Name: e.FQDN}
}

// sandboxHostname returns the hostname that is passed to the runtime. It is empty
// for a pod on the host's network, which has no UTS namespace: the runtime would
// set the hostname of the node.
func sandboxHostname(pod *v1.Pod, clusterDomain string) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	hostname, domain, err := HostnameAndDomain(pod, clusterDomain)
	if err != nil || domain == "" || !isTrue(pod.Spec.SetHostnameAsFQDN) {
		return hostname, err
	}
	fqdn := hostname + "." + domain
	if len(fqdn) > maxFQDN {
		return "", &FQDNError{fqdn}
	}
	return fqdn, nil
}
