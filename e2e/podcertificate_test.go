//go:build e2e

package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// A pod waits for the certificate that it projects, and starts once the signer has issued it. An agent that was killed requests
// it again, and the pod has the old files until then. A denied certificate keeps its pod from starting, with the signer's reason.
func TestPodCertificate(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Config["featureGates"] = map[string]any{"PodCertificateRequest": true}
	})
	requests := c.Admin.CertificatesV1beta1().PodCertificateRequests(ns)
	seen := map[string]bool{}
	answer := func(pod string, set func(*certificatesv1beta1.PodCertificateRequest)) {
		t.Helper()
		await(t, func() error {
			list, err := requests.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, r := range list.Items {
				if r.Spec.PodName == pod && !seen[r.Name] {
					set(&r)
					if _, err := requests.UpdateStatus(t.Context(), &r, metav1.UpdateOptions{}); err != nil {
						return err
					}
					seen[r.Name] = true
					return nil
				}
			}
			return errors.New("no PodCertificateRequest of pod " + pod)
		})
	}
	issue := func(r *certificatesv1beta1.PodCertificateRequest) { must(t, c.SignForPod(r)) }
	of := func(name string) string {
		return manifest(s, name, strings.ReplaceAll(`
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [cat, /cert/bundle.pem, --, sleep], volumeMounts: [{name: cert, mountPath: /cert}]}
volumes:
- name: cert
  projected:
    sources:
    - podCertificate: {signerName: SIGNER, keyType: ECDSAP256, credentialBundlePath: bundle.pem, keyPath: key.pem, certificateChainPath: chain.pem}`,
			"SIGNER", ns+".example.org/pods"))
	}
	pod := create(t, c, ns, n.Name, of("p"))
	file := func(name string) string { return volumeOf(a, string(pod.UID), "projected", "cert", name) }
	answer("p", issue)
	awaitAPIPod(t, c, ns, "p", ready)
	first, err := tls.LoadX509KeyPair(file("chain.pem"), file("key.pem"))
	must(t, err)
	must(t, a.Kill9())
	must(t, a.Start())
	answer("p", issue)
	await(t, func() error {
		now, err := tls.LoadX509KeyPair(file("chain.pem"), file("key.pem"))
		if err == nil && string(now.Certificate[0]) == string(first.Certificate[0]) {
			err = errors.New("the pod has the certificate of before the restart")
		}
		return err
	})
	create(t, c, ns, n.Name, of("refused"))
	answer("refused", func(r *certificatesv1beta1.PodCertificateRequest) {
		r.Status.Conditions = []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue, Reason: "UnknownPod", Message: "no such pod",
			LastTransitionTime: metav1.Now()}}
	})
	await(t, func() error {
		events, err := c.Admin.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Denied,involvedObject.name=refused"})
		if err == nil && (len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, "was denied: no such pod")) {
			err = fmt.Errorf("got the events %+v", events.Items)
		}
		return err
	})
	for _, name := range []string{"p", "refused"} {
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
	}
}
