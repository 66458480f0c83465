package cluster

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// BootstrapKubeconfig writes a kubeconfig with which a node may ask for its first certificate, and nothing else.
func (c *Cluster) BootstrapKubeconfig(t TB) string {
	t.Helper()
	const group = "system:bootstrappers:e2e"
	config, err := c.config("bootstrap", c.URL(), "system:bootstrap:e2e", group)
	if err != nil {
		t.Fatalf("bootstrap: %v", err)
	}
	_, err = c.Admin.RbacV1().ClusterRoleBindings().Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-bootstrap"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("bootstrap: %v", err)
	}
	path := c.pki.file("bootstrap.kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfig(config), path); err != nil {
		t.Fatalf("bootstrap: %v", err)
	}
	return path
}

// OpenRequests returns the unanswered certificate requests for a node's name and a signer.
func (c *Cluster) OpenRequests(ctx context.Context, node, signer string) ([]certificatesv1.CertificateSigningRequest, error) {
	all, err := c.Admin.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []certificatesv1.CertificateSigningRequest
	for _, r := range all.Items {
		asked, err := parseRequest(&r)
		if err != nil {
			return nil, err
		}
		if r.Spec.SignerName == signer && len(r.Status.Conditions) == 0 && asked.Subject.CommonName == "system:node:"+node {
			out = append(out, r)
		}
	}
	return out, nil
}

func parseRequest(r *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, fmt.Errorf("%s holds no request", r.Name)
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// Sign approves a request, as an administrator does, and signs it, as the controller manager does, for this time.
func (c *Cluster) Sign(ctx context.Context, r *certificatesv1.CertificateSigningRequest, from, to time.Time) error {
	asked, err := parseRequest(r)
	if err != nil {
		return err
	}
	template := certificate(asked.Subject.CommonName)
	template.Subject, template.DNSNames, template.IPAddresses = asked.Subject, asked.DNSNames, asked.IPAddresses
	template.NotBefore, template.NotAfter = from, to
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if r.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.pki.ca.cert, asked.PublicKey, c.pki.ca.key)
	if err != nil {
		return err
	}
	requests := c.Admin.CertificatesV1().CertificateSigningRequests()
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "approved by the test",
	})
	if r, err = requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{}); err != nil {
		return err
	}
	r.Status.Certificate = certPEM(der)
	_, err = requests.UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}

// SignForPod issues the certificate of a pod's request, valid from now for two hours, into the request's status.
func (c *Cluster) SignForPod(r *certificatesv1beta1.PodCertificateRequest) error {
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	template := certificate(r.Spec.PodName)
	template.NotBefore = time.Now().Truncate(time.Second)
	template.NotAfter = template.NotBefore.Add(2 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, c.pki.ca.cert, asked.PublicKey, c.pki.ca.key)
	r.Status.CertificateChain = string(certPEM(der))
	r.Status.NotBefore, r.Status.NotAfter = &metav1.Time{Time: template.NotBefore}, &metav1.Time{Time: template.NotAfter}
	r.Status.BeginRefreshAt = &metav1.Time{Time: template.NotBefore.Add(time.Hour)}
	r.Status.Conditions = []metav1.Condition{{Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued,
		Status: metav1.ConditionTrue, Reason: "Issued", LastTransitionTime: metav1.Now()}}
	return err
}

// Certificate makes a client certificate of the cluster's authority for a user in groups; it gives the files of certificate and
// key.
func (c *Cluster) Certificate(t TB, user string, groups ...string) (certFile, keyFile string) {
	t.Helper()
	p, err := c.pki.issue(c.pki.ca, strings.ReplaceAll(user, ":", "-"), user, groups...)
	if err != nil {
		t.Fatalf("certificate of %s: %v", user, err)
	}
	return p.certFile, p.keyFile
}

// Stranger is Certificate from an untrusted authority.
func (c *Cluster) Stranger(t TB, user string, groups ...string) (certFile, keyFile string) {
	t.Helper()
	dir, err := os.MkdirTemp(c.Dir, "stranger")
	if err != nil {
		t.Fatalf("a strange authority: %v", err)
	}
	p, err := newPKI(dir)
	if err != nil {
		t.Fatalf("a strange authority: %v", err)
	}
	made, err := p.issue(p.ca, "stranger", user, groups...)
	if err != nil {
		t.Fatalf("a strange certificate: %v", err)
	}
	return made.certFile, made.keyFile
}
