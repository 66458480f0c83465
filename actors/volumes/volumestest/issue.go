package volumestest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	beta "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Issue sets the status of a request as its signer does. The certificate is valid from the given time, for so long, and is to be
// renewed after half of that.
func Issue(t testing.TB, r *beta.PodCertificateRequest, from time.Time, life time.Duration) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	from = from.Truncate(time.Second)
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	fail(err)
	fail(asked.CheckSignature())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	fail(err)
	leaf := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: r.Spec.PodName}, NotBefore: from,
		NotAfter: from.Add(life)}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: from,
		NotAfter: leaf.NotAfter, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, asked.PublicKey, key)
	fail(err)
	r.Status = beta.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{Type: beta.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue,
			Reason: "Issued", LastTransitionTime: metav1.Now()}},
		CertificateChain: "a comment\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        &metav1.Time{Time: leaf.NotBefore}, NotAfter: &metav1.Time{Time: leaf.NotAfter},
		BeginRefreshAt: &metav1.Time{Time: from.Add(life / 2)},
	}
}
