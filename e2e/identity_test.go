//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// awaitCSR waits until the node has asked a signer for a certificate, and gives the one request.
func awaitCSR(t *testing.T, c *cluster.Cluster, node, signer string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	var out *certificatesv1.CertificateSigningRequest
	await(t, func() error {
		open, err := c.OpenRequests(t.Context(), node, signer)
		if err != nil {
			return err
		}
		if len(open) != 1 {
			return fmt.Errorf("%d certificate requests of %s are open, want 1", len(open), signer)
		}
		out = &open[0]
		return nil
	})
	return out
}

// awaitInHealth waits until health, with its details, has these words, or lacks them.
func awaitInHealth(t *testing.T, a *stack.Agent, words string, there bool) {
	t.Helper()
	await(t, func() error {
		_, text, err := a.Healthz(t.Context(), "?verbose")
		if err != nil {
			return err
		}
		if strings.Contains(text, words) != there {
			return fmt.Errorf("health: %s", text)
		}
		return nil
	})
}

// A machine with only a bootstrap kubeconfig runs its static pods, explains how to approve its request, and becomes a node after
// the approval. Its next certificate replaces the current one during operation, without a failed call.
func TestANodeBootstrapsAndRotates(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	s := stack.Start(t, stack.Options{})
	kubeconfig := ""
	a := agentWith(t, s, func(a *stack.Agent) {
		kubeconfig = filepath.Join(a.RootDir, "kubelet.conf")
		a.Args = append(a.Args, "--kubeconfig="+kubeconfig, "--bootstrap-kubeconfig="+c.BootstrapKubeconfig(t),
			"--hostname-override="+n.Name)
		a.Config["rotateCertificates"] = true
		a.Config["nodeStatusUpdateFrequency"] = "1s"
		a.Config["nodeStatusReportFrequency"] = "1s"
		a.Config["nodeLeaseDurationSeconds"] = 4
	})
	must(t, a.Write("web.yaml", helloManifest("web", s.HelloImage())))
	before := running(t, s, 1)
	const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
	first := awaitCSR(t, c, n.Name, signer)
	if first.Spec.Username != "system:bootstrap:e2e" {
		t.Errorf("%s asked", first.Spec.Username)
	}
	awaitInHealth(t, a, "kubectl certificate approve "+first.Name, true)

	// The first certificate has lived most of its life, so that the next one is asked for at once.
	must(t, c.Sign(t.Context(), first, time.Now().Add(-10*time.Hour), time.Now().Add(30*time.Minute)))
	awaitNode(t, c, n.Name, nodeReady)
	mirror := "web-" + n.Name
	awaitAPIPod(t, c, "default", mirror, func(p *corev1.Pod) error { return ready(p) })
	second := awaitCSR(t, c, n.Name, signer)
	if second.Spec.Username != "system:node:"+n.Name {
		t.Errorf("%s asked for the second", second.Spec.Username)
	}
	old := credentials(t, c, n.Name, time.Time{})
	if len(old) != 1 {
		t.Errorf("the node used %d certificates: %v", len(old), old)
	}
	must(t, c.Sign(t.Context(), second, time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)))
	var begun time.Time
	await(t, func() error {
		if used := credentials(t, c, n.Name, time.Time{}); len(used) != 2 {
			return fmt.Errorf("the node uses %v", used)
		}
		begun = time.Now()
		return nil
	})
	await(t, func() error { // requests in progress have ended, and the lease is renewed with the new one
		requests, err := c.Requests(n.Name)
		must(t, err)
		renewed := 0
		for _, r := range cluster.Since(requests, begun) {
			if r.Object.Resource == "leases" && !old[r.Credential()] {
				renewed++
			}
		}
		if renewed < 5 {
			return fmt.Errorf("%d renewals with the new certificate", renewed)
		}
		return nil
	})
	requests, err := c.Requests(n.Name)
	must(t, err)
	for _, r := range requests {
		if r.Answer.Code == 401 || r.Answer.Code == 403 || r.Answer.Code >= 500 {
			t.Errorf("%s %s was answered %d", r.Verb, r.URI, r.Answer.Code)
		}
		if r.Object.Resource == "leases" && r.At.After(begun) && old[r.Credential()] {
			t.Errorf("%s %s at %s was sent with the old certificate", r.Verb, r.URI, r.At)
		}
	}
	awaitInHealth(t, a, "certificate", false)
	asStarted(t, s, before)
	if log := a.Log(); strings.Contains(log, "connection was cut") || strings.Contains(log, "cannot be reached") {
		t.Error("a call failed")
	}

	// The next agent needs no bootstrap.
	must(t, a.Kill9())
	a.Args = []string{"--kubeconfig=" + kubeconfig, "--hostname-override=" + n.Name}
	must(t, a.Start())
	again := time.Now()
	await(t, func() error {
		if used := credentials(t, c, n.Name, again); len(used) != 1 {
			return fmt.Errorf("the node uses %v", used)
		}
		return nil
	})
	asStarted(t, s, before)
	if log := a.Log(); strings.Contains(log, "PRIVATE KEY") {
		t.Error("the log has a key")
	}
}

// credentials are the certificates that a node's requests after a moment were made with.
func credentials(t *testing.T, c *cluster.Cluster, node string, after time.Time) map[string]bool {
	t.Helper()
	requests, err := c.Requests(node)
	must(t, err)
	out := map[string]bool{}
	for _, r := range cluster.Since(requests, after) {
		out[r.Credential()] = true
	}
	return out
}

// A node changes hands between a kubelet and the agent with its certificates: neither asks for one that the other has.
func TestATakenOverNodeKeepsItsIdentity(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	s := stack.Start(t, stack.Options{})
	bootstrap := c.BootstrapKubeconfig(t)
	a := agentWith(t, s, func(a *stack.Agent) {
		asKubelet(t, a)
		a.Args = append(a.Args, "--kubeconfig="+filepath.Join(a.RootDir, "kubelet.conf"), "--bootstrap-kubeconfig="+bootstrap,
			"--hostname-override="+n.Name, "--cert-dir="+filepath.Join(a.RootDir, "pki"))
		a.Config["rotateCertificates"], a.Config["serverTLSBootstrap"] = true, true
	})
	for _, signer := range []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName} {
		must(t, c.Sign(t.Context(), awaitCSR(t, c, n.Name, signer), time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)))
	}
	awaitNode(t, c, n.Name, nodeReady)
	await(t, func() error {
		_, err := os.Stat(filepath.Join(a.RootDir, "pki/kubelet-server-current.pem"))
		return err
	})
	kubelets := credentials(t, c, n.Name, time.Time{})
	kubelet := a.Binary
	for _, binary := range []string{"", kubelet} {
		_, err := a.Term()
		must(t, err)
		a.Binary = binary
		begun := time.Now()
		must(t, a.Start())
		await(t, func() error {
			used := credentials(t, c, n.Name, begun)
			if len(used) != 1 {
				return fmt.Errorf("the node uses %v", used)
			}
			for one := range used {
				if !kubelets[one] {
					t.Fatalf("the node uses %s, and used %v before", one, kubelets)
				}
			}
			return nil
		})
		if binary == "" {
			awaitInHealth(t, a, "[+]identity ok", true)
			awaitInHealth(t, a, "certificate", false)
			client := newNodeClient(t, c, a, "", "", "")
			await(t, func() error { // by the kubelet's serving certificate, which the cluster's authority signed
				_, _, _, err := client.ask("GET", "/healthz")
				return err
			})
		}
	}
	all, err := c.Admin.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, r := range all.Items {
		if r.Spec.Username == "system:node:"+n.Name && r.Spec.SignerName != certificatesv1.KubeletServingSignerName {
			t.Errorf("%s asked for %s", r.Spec.Username, r.Spec.SignerName)
		}
	}
	if open, err := c.OpenRequests(t.Context(), n.Name, certificatesv1.KubeletServingSignerName); err != nil || len(open) > 0 {
		t.Errorf("%d requests are open: %v", len(open), err)
	}
}
