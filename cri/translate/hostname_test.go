package translate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHostnames(t *testing.T) {
	yes, override, bad := true, "over.ride", "Über"
	long := strings.Repeat("n", 62) + "-.tail"
	for _, tc := range []struct {
		name             string
		podName          string
		spec             v1.PodSpec
		hostname, domain string
		kernel           string
		fails            string
	}{
		{name: "pod's name", podName: "web", hostname: "web", kernel: "web"},
		{name: "own", podName: "web", spec: v1.PodSpec{Hostname: "own"}, hostname: "own", kernel: "own"},
		{name: "subdomain", podName: "web", spec: v1.PodSpec{Subdomain: "sub"},
			hostname: "web", domain: "sub.shop.svc.cluster.local", kernel: "web"},
		{name: "fqdn", podName: "web", spec: v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &yes},
			hostname: "web", domain: "sub.shop.svc.cluster.local", kernel: "web.sub.shop.svc.cluster.local"},
		{name: "fqdn without domain", podName: "web", spec: v1.PodSpec{SetHostnameAsFQDN: &yes}, hostname: "web", kernel: "web"},
		{name: "cut", podName: long, hostname: strings.Repeat("n", 62), kernel: strings.Repeat("n", 62)},
		{name: "override", podName: "web", spec: v1.PodSpec{HostnameOverride: &override, Subdomain: "sub",
			SetHostnameAsFQDN: &yes},
			hostname: "over.ride", kernel: "over.ride"},
		{name: "host network", podName: "web", spec: v1.PodSpec{HostNetwork: true}, hostname: "web"},
		{name: "bad override", spec: v1.PodSpec{HostnameOverride: &bad}, fails: "hostnameOverride"},
		{name: "bad hostname", spec: v1.PodSpec{Hostname: "a.b"}, fails: "hostname"},
		{name: "bad subdomain", spec: v1.PodSpec{Subdomain: "-"}, fails: "subdomain"},
		{name: "nothing left", podName: strings.Repeat("-", 64), fails: "no beginning"},
		{name: "fqdn too long", podName: strings.Repeat("n", 60), spec: v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: &yes},
			hostname: strings.Repeat("n", 60), domain: "sub.shop.svc.cluster.local", fails: "failed to construct FQDN from pod hostname and cluster domain, FQDN nnn"},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tc.podName, Namespace: "shop"}, Spec: tc.spec}
		hostname, domain, _ := HostnameAndDomain(pod, "cluster.local")
		kernel, err := sandboxHostname(pod, "cluster.local")
		if hostname != tc.hostname || domain != tc.domain || kernel != tc.kernel {
			t.Errorf("%s: %q, %q, %q", tc.name, hostname, domain, kernel)
		}
		if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
