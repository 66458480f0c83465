package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditPolicy records the requests of nodes, after their answer or, for a watch, at its beginning and end.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: None}
`

// URL is where the server serves. It is an address of the node, so that pods reach it too.
func (c *Cluster) URL() string { return fmt.Sprintf("https://%s:%d", isolate.NodeIP, c.port(3)) }

func (c *Cluster) auditLog() string { return filepath.Join(c.Dir, "audit.log") }

func (c *Cluster) startAPIServer() error {
	policy := filepath.Join(c.Dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	f := c.pki.file
	server := c.command(c.parts.APIServer,
		"--etcd-servers="+c.etcdURL(),
		"--advertise-address="+isolate.NodeIP,
		fmt.Sprint("--secure-port=", c.port(3)),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true,"+
			"certificates.k8s.io/v1beta1/podcertificaterequests=true",
		"--client-ca-file="+f("ca.crt"),
		"--tls-cert-file="+f("apiserver.crt"),
		"--tls-private-key-file="+f("apiserver.key"),
		"--kubelet-client-certificate="+f("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+f("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file="+f("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+f("front-proxy-client.crt"),
		"--proxy-client-key-file="+f("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+f("sa.key"),
		"--service-account-signing-key-file="+f("sa.key"),
		"--audit-policy-file="+policy,
		"--audit-log-path="+c.auditLog(),
		"--audit-log-mode=blocking",
	)
	server.Args = append(server.Args, c.args...)
	if err := c.apiServer.Start(server); err != nil {
		return err
	}
	return c.apiServer.AwaitReady(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := c.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// StartAPIServer starts the server again over the same etcd, at the same address, and waits until it is ready.
func (c *Cluster) StartAPIServer() error { return c.startAPIServer() }

// KillAPIServer kills the server with SIGKILL and reaps it. There is no gentler way, as a server that is asked to end waits a
// minute for watches.
func (c *Cluster) KillAPIServer() error {
	if err := c.own("killing the server"); err != nil {
		return err
	}
	return c.apiServer.End(syscall.SIGKILL)
}

// FreezeAPIServer stops the server with SIGSTOP: it accepts connections and answers none, until ThawAPIServer.
func (c *Cluster) FreezeAPIServer() error {
	if err := c.own("freezing the server"); err != nil {
		return err
	}
	return c.apiServer.Process().Signal(syscall.SIGSTOP)
}

// ThawAPIServer undoes FreezeAPIServer.
func (c *Cluster) ThawAPIServer() error { return c.apiServer.Process().Signal(syscall.SIGCONT) }

// RestartAPIServer is KillAPIServer and StartAPIServer.
func (c *Cluster) RestartAPIServer() error {
	if err := c.KillAPIServer(); err != nil {
		return err
	}
	return c.StartAPIServer()
}

// populate creates a namespace's objects in place of a cluster's controllers. The service account's token is only mounted into
// pods on request, so that they need nothing beyond the test's objects.
func (c *Cluster) populate(ctx context.Context, namespace string) error {
	no := false
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}, AutomountServiceAccountToken: &no}
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return err
	}
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
		Data: map[string]string{"ca.crt": string(ca)}}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err = c.Admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			break
		}
		if time.Since(begun) > waitLimit {
			return err // the server makes its namespaces a little after it is ready
		}
	}
	_, err = c.Admin.CoreV1().ConfigMaps(namespace).Create(ctx, root, metav1.CreateOptions{})
	return err
}
