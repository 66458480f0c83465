//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// A pod has the certificates of a ClusterTrustBundle by its name and, for another file, by signer and labels. A change of the
// bundle reaches the file while the pod runs, also after the agent was killed.
func TestClusterTrustBundle(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Config["featureGates"] = map[string]any{"ClusterTrustBundle": true, "ClusterTrustBundleProjection": true}
	})
	first, err := os.ReadFile(c.CAFile)
	must(t, err)
	second, err := os.ReadFile(filepath.Join(filepath.Dir(c.CAFile), "front-proxy-ca.crt"))
	must(t, err)
	bundles := c.Admin.CertificatesV1beta1().ClusterTrustBundles()
	signer := ns + ".example.org/ca"
	var byName *certificatesv1beta1.ClusterTrustBundle
	for name, spec := range map[string]certificatesv1beta1.ClusterTrustBundleSpec{
		ns: {TrustBundle: string(first)}, strings.ReplaceAll(signer, "/", ":") + ":1": {SignerName: signer, TrustBundle: string(second)},
	} {
		made, err := bundles.Create(t.Context(), &certificatesv1beta1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"for": "pods"}}, Spec: spec}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { _ = bundles.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		if name == ns {
			byName = made
		}
	}
	pod := create(t, c, ns, n.Name, manifest(s, "p", strings.NewReplacer("NAME", ns, "SIGNER", signer).Replace(`
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [cat, /trust/name.pem, --, sleep], volumeMounts: [{name: trust, mountPath: /trust}]}
volumes:
- name: trust
  projected:
    sources:
    - clusterTrustBundle: {name: NAME, path: name.pem}
    - clusterTrustBundle: {signerName: SIGNER, labelSelector: {matchLabels: {for: pods}}, path: signer.pem}
    - clusterTrustBundle: {name: none, optional: true, path: none.pem}`)))
	awaitAPIPod(t, c, ns, "p", ready)
	has := func(file, want string) func() error {
		return func() error {
			got, err := os.ReadFile(volumeOf(a, string(pod.UID), "projected", "trust", file))
			if err == nil && strings.TrimSpace(string(got)) != strings.TrimSpace(want) {
				err = fmt.Errorf("%s has %q, want %q", file, got, want)
			}
			return err
		}
	}
	await(t, has("name.pem", string(first)))
	await(t, has("signer.pem", string(second)))
	await(t, has("none.pem", ""))
	must(t, a.Kill9())
	must(t, a.Start())
	byName.Spec.TrustBundle = string(second)
	_, err = bundles.Update(t.Context(), byName, metav1.UpdateOptions{})
	must(t, err)
	await(t, has("name.pem", string(second)))
	remove(t, c, ns, "p")
	awaitNoAPIPod(t, c, ns, "p")
}
