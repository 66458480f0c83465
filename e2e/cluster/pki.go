package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
)

// pki has two authorities: one for servers and clients, and one for authenticating proxies, by which alone the server recognises
// them.
type pki struct {
	dir       string
	ca, front *authority
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pair is a certificate with its key, in PEM, and where both lie.
type pair struct {
	cert, key         []byte
	certFile, keyFile string
}

func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	var err error
	if p.ca, err = p.authority("ca"); err != nil {
		return nil, err
	}
	if p.front, err = p.authority("front-proxy-ca"); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.file("sa.key"), text, 0o600); err != nil {
		return nil, err
	}
	_, serving := p.issue(p.ca, "apiserver", "kube-apiserver")
	_, kubelet := p.issue(p.ca, "apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
	_, front := p.issue(p.front, "front-proxy-client", "front-proxy-client")
	return p, errors.Join(serving, kubelet, front)
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) authority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	text, err := keyPEM(key)
	return &authority{cert, key}, errors.Join(err, os.WriteFile(p.file(name+".crt"), certPEM(der), 0o644),
		os.WriteFile(p.file(name+".key"), text, 0o600))
}

// issue makes a certificate for a client and server of the node's addresses, with a user's name and groups in it.
func (p *pki) issue(by *authority, file, name string, groups ...string) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(name)
	template.Subject.Organization = groups
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(isolate.NodeIP), net.IPv4(10, 96, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	out := &pair{cert: certPEM(der), certFile: p.file(file + ".crt"), keyFile: p.file(file + ".key")}
	if out.key, err = keyPEM(key); err != nil {
		return nil, err
	}
	return out, errors.Join(os.WriteFile(out.certFile, out.cert, 0o644), os.WriteFile(out.keyFile, out.key, 0o600))
}

func certificate(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // no randomness
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}
