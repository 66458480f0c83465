package cluster

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Node is the identity system:node:<Name> in the group system:nodes, by a client certificate. The Node object need not exist.
type Node struct {
	Name string
	// Kubeconfig, with the certificate in it, CertFile and KeyFile are files, in the cluster's Dir.
	Kubeconfig, CertFile, KeyFile string
	// Client asks as the node does, and is not an administrator.
	Client kubernetes.Interface

	cluster *Cluster
}

// Node makes an identity of a name of its own for a test. At the test's end the Node object and its lease are
// deleted, if there are any.
func (c *Cluster) Node(t TB) *Node {
	t.Helper()
	return c.node(t, c.URL())
}

// NodeBehind is Node with a proxy between it and the server.
func (c *Cluster) NodeBehind(t TB, p *Proxy) *Node {
	t.Helper()
	return c.node(t, p.URL)
}

func (c *Cluster) node(t TB, url string) *Node {
	t.Helper()
	name := "node-" + strings.ToLower(rand.Text()[:6])
	config, err := c.config(name, url, "system:node:"+name, "system:nodes")
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	n := &Node{Name: name, Kubeconfig: c.pki.file(name + ".kubeconfig"), cluster: c}
	n.CertFile, n.KeyFile = c.pki.file(name+".crt"), c.pki.file(name+".key")
	if n.Client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatalf("node: %v", err)
	}
	if err := clientcmd.WriteToFile(kubeconfig(config), n.Kubeconfig); err != nil {
		t.Fatalf("node: %v", err)
	}
	t.Cleanup(func() {
		if !c.apiServer.Running() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		errs := []error{
			c.Admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
			c.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}),
		}
		for _, err := range errs {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("node %s: %v", name, err)
			}
		}
	})
	return n
}

// Args are the flags with which an agent, or a kubelet, is this node.
func (n *Node) Args() []string {
	return []string{"--kubeconfig=" + n.Kubeconfig, "--hostname-override=" + n.Name}
}

// Create creates the Node object as an administrator; change, unless nil, modifies it. It returns the server's object.
func (n *Node) Create(ctx context.Context, change func(*corev1.Node)) (*corev1.Node, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if change != nil {
		change(node)
	}
	return n.cluster.Admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
}

// Namespace makes a namespace for a test, with a service account and the authority's certificate. At the test's end its
// pods are deleted without grace; the rest stays, as there is no controller that would finish a namespace's deletion.
func (c *Cluster) Namespace(t TB) string {
	t.Helper()
	ctx := context.Background()
	ns, err := c.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("namespace: %v", err)
	}
	if err := c.populate(ctx, ns.Name); err != nil {
		t.Fatalf("namespace: %v", err)
	}
	t.Cleanup(func() {
		if !c.apiServer.Running() {
			return
		}
		now := int64(0)
		err := c.Admin.CoreV1().Pods(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{})
		if err != nil {
			t.Errorf("pods of namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// Kubeconfig writes a kubeconfig with a certificate of a user and groups, and returns its path.
func (c *Cluster) Kubeconfig(user string, groups ...string) (string, error) {
	name := strings.ReplaceAll(user, ":", "-")
	config, err := c.config(name, c.URL(), user, groups...)
	if err != nil {
		return "", err
	}
	path := c.pki.file(name + ".kubeconfig")
	return path, clientcmd.WriteToFile(kubeconfig(config), path)
}

// config is for a client with a certificate of a user and groups. It is not held back by a rate.
func (c *Cluster) config(file, url, user string, groups ...string) (*rest.Config, error) {
	p, err := c.pki.issue(c.pki.ca, file, user, groups...)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.CAFile)
	return &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertData: p.cert, KeyData: p.key},
		QPS:             -1,
		WarningHandler:  rest.NoWarnings{},
	}, err
}

func kubeconfig(r *rest.Config) api.Config {
	config := *api.NewConfig()
	config.Clusters["e2e"] = &api.Cluster{Server: r.Host, CertificateAuthorityData: r.CAData}
	config.AuthInfos["node"] = &api.AuthInfo{ClientCertificateData: r.CertData, ClientKeyData: r.KeyData}
	config.Contexts["e2e"] = &api.Context{Cluster: "e2e", AuthInfo: "node"}
	config.CurrentContext = "e2e"
	return config
}

// Request is something that a node asked of the server, when it was answered: a watch both when it began and when it
// ended.
type Request struct {
	Stage string `json:"stage"` // ResponseStarted, ResponseComplete or Panic
	Verb  string `json:"verb"`  // get, list, watch, create, update, patch, delete
	URI   string `json:"requestURI"`
	User  struct {
		Name string `json:"username"`
		// Extra has the server's details of the credentials.
		Extra map[string][]string `json:"extra"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"` // pods, nodes, leases, events …
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Answer struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	At metav1.MicroTime `json:"stageTimestamp"`
}

// Requests returns a node's requests to the server since the cluster's start, oldest first, from the server's audit log. A
// request that was just answered may be missing.
func (c *Cluster) Requests(node string) ([]Request, error) {
	file, err := os.Open(c.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	var all []Request
	for in := bufio.NewReader(file); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return all, nil // the last line may be half written
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		if r.User.Name == "system:node:"+node {
			all = append(all, r)
		}
	}
}

// Credential returns the certificate of a request; empty if the server does not log it.
func (r Request) Credential() string {
	return strings.Join(r.User.Extra["authentication.kubernetes.io/credential-id"], " ")
}

// Since returns the requests that were answered after a moment.
func Since(all []Request, begun time.Time) []Request {
	for i, r := range all {
		if r.At.After(begun) {
			return all[i:]
		}
	}
	return nil
}
