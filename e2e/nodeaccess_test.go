//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeClient is a client of an agent's port 10250 with an identity, which verifies the port by the cluster's authority.
type nodeClient struct {
	http  *http.Client
	base  string
	token string
}

func newNodeClient(t *testing.T, c *cluster.Cluster, a *stack.Agent, certFile, keyFile, token string) *nodeClient {
	t.Helper()
	ca, err := os.ReadFile(c.CAFile)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: roots}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		must(t, err)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return &nodeClient{
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: waitLimit},
		base: "https://" + net.JoinHostPort(isolate.NodeIP, fmt.Sprint(a.Config["port"])), token: token,
	}
}

func (n *nodeClient) ask(method, path string) (code int, body string, leaf *x509.Certificate, err error) {
	request, err := http.NewRequest(method, n.base+path, nil)
	if err != nil {
		return 0, "", nil, err
	}
	if n.token != "" {
		request.Header.Set("Authorization", "Bearer "+n.token)
	}
	answer, err := n.http.Do(request)
	if err != nil {
		return 0, "", nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // read to the end
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), answer.TLS.PeerCertificates[0], err
}

// account creates a service account with these rules, and returns its token.
func account(t *testing.T, c *cluster.Cluster, ns, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	_, err := c.Admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	must(t, err)
	full := ns + "-" + name
	_, err = c.Admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: full},
		Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}, metav1.CreateOptions{})
	must(t, err)
	token, err := c.Admin.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// The node's port shows a certificate that the cluster's signer issued, replaces it while it works, and lets in whom the real API
// server knows and allows.
func TestTheNodesPortKnowsWhoMayDoWhat(t *testing.T) {
	c := cluster.Shared(t)
	n, other := c.Node(t), c.Node(t)
	ns := c.Namespace(t)
	_, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Config["serverTLSBootstrap"] = true
		a.Config["authentication"] = map[string]any{"x509": map[string]any{"clientCAFile": c.CAFile}}
	})
	const signer = certificatesv1.KubeletServingSignerName
	first := awaitCSR(t, c, n.Name, signer)
	awaitInHealth(t, a, "kubectl certificate approve "+first.Name, true)
	// It has lived most of its life, so that the next one is asked for at once.
	must(t, c.Sign(t.Context(), first, time.Now().Add(-10*time.Hour), time.Now().Add(30*time.Minute)))

	read := func(subresource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/" + subresource}, Verbs: []string{"get"}}
	}
	adminCert, adminKey := c.Certificate(t, "e2e:administrator", "system:masters")
	strangerCert, strangerKey := c.Stranger(t, "e2e:administrator", "system:masters")
	admin := newNodeClient(t, c, a, adminCert, adminKey, "")
	var before *x509.Certificate
	await(t, func() (err error) {
		_, _, before, err = admin.ask(http.MethodGet, "/healthz")
		return err
	})
	if before.Subject.CommonName != "system:node:"+n.Name || before.VerifyHostname(isolate.NodeIP) != nil || before.VerifyHostname(n.Name) != nil {
		t.Errorf("the certificate is for %s, %v, %v", before.Subject, before.DNSNames, before.IPAddresses)
	}

	const exec = "/exec/default/none/none?command=id&output=1"
	const ok, unauthorized, forbidden, none = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound
	for _, who := range []struct {
		name                       string
		client                     *nodeClient
		pods, healthz, config, run int
	}{
		{"nobody", newNodeClient(t, c, a, "", "", ""), unauthorized, unauthorized, unauthorized, unauthorized},
		{"a stranger", newNodeClient(t, c, a, strangerCert, strangerKey, ""), unauthorized, unauthorized, unauthorized, unauthorized},
		{"a wrong token", newNodeClient(t, c, a, "", "", "wrong"), unauthorized, unauthorized, unauthorized, unauthorized},
		{"another node", newNodeClient(t, c, a, other.CertFile, other.KeyFile, ""), forbidden, forbidden, forbidden, forbidden},
		{"an account", newNodeClient(t, c, a, "", "", account(t, c, ns, "none")), forbidden, forbidden, forbidden, forbidden},
		{"a reader of pods", newNodeClient(t, c, a, "", "", account(t, c, ns, "pods", read("pods"))), ok, forbidden, forbidden, forbidden},
		{"a reader of health", newNodeClient(t, c, a, "", "", account(t, c, ns, "health", read("healthz"))), forbidden, ok, forbidden, forbidden},
		{"a reader of all", newNodeClient(t, c, a, "", "", account(t, c, ns, "proxy", read("proxy"))), ok, ok, ok, forbidden},
		{"the administrator", admin, ok, ok, ok, none},
	} {
		for path, want := range map[string]int{"/pods": who.pods, "/healthz": who.healthz, "/configz": who.config, exec: who.run} {
			code, text, _, err := who.client.ask(http.MethodGet, path)
			must(t, err)
			if path == exec && want == none && code != unauthorized && code != forbidden {
				continue // it was admitted, and requested a missing pod in an unusual way
			}
			if code != want {
				t.Errorf("%s, %s: %d %q, want %d", who.name, path, code, text, want)
			}
		}
	}
	_, err := c.Admin.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", n.Name+":"+fmt.Sprint(a.Config["port"]), "proxy/configz").DoRaw(t.Context())
	if err != nil {
		t.Errorf("through the API server: %v", err)
	}

	// The next certificate is shown from one connection to the next, and none fails.
	stop, done := make(chan struct{}), make(chan struct{})
	var asked atomic.Int64
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if code, text, _, err := admin.ask(http.MethodGet, "/healthz"); err != nil || code != ok {
				t.Errorf("meanwhile: %d %q %v", code, text, err)
			}
			asked.Add(1)
		}
	}()
	second := awaitCSR(t, c, n.Name, signer)
	must(t, c.Sign(t.Context(), second, time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)))
	await(t, func() error {
		_, _, now, err := admin.ask(http.MethodGet, "/healthz")
		if err != nil {
			return err
		}
		if now.Equal(before) {
			return fmt.Errorf("the first certificate is shown still")
		}
		return nil
	})
	close(stop)
	<-done
	if asked.Load() == 0 {
		t.Error("nothing was asked meanwhile")
	}
	awaitInHealth(t, a, "certificate", false)
	if _, err := os.Stat(filepath.Join(a.RootDir, "pki/kubelet-server-current.pem")); err != nil {
		t.Error(err)
	}
	if log := a.Log(); strings.Contains(log, "wrong") && strings.Contains(log, "Bearer") {
		t.Error("the log has a token")
	}
	awaitNode(t, c, n.Name, func(node *corev1.Node) error {
		if p := node.Status.DaemonEndpoints.KubeletEndpoint.Port; strconv.Itoa(int(p)) != fmt.Sprint(a.Config["port"]) {
			return fmt.Errorf("the Node names port %d", p)
		}
		return nil
	})
}
