package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
)

// ownAuthority makes a client's certificate that is its own authority, and writes it as the file of client CAs.
func ownAuthority(t *testing.T, file string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "deployer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A client that the node's CA certifies creates, replaces and removes a pod through port 10250. Other clients are rejected.
func TestPodsAreSubmittedByTheNodesAPI(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	own := ownAuthority(t, filepath.Join(dir, "ca.crt"))
	r := newRig(t, sim.Options{}, "--enable-server", "--port="+port, "--authorization-mode=AlwaysAllow",
		"--client-ca-file="+filepath.Join(dir, "ca.crt"), "--enable-manifest-submission")
	r.start(nil)
	ask := func(cert *tls.Certificate, method, path, text string) (int, string) {
		t.Helper()
		conf := &tls.Config{InsecureSkipVerify: true}
		if cert != nil {
			conf.Certificates = []tls.Certificate{*cert}
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "https://127.0.0.1:"+port+path, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	web := manifest("web", "Always", nil, []string{"main one"})
	if code, text := ask(nil, "POST", "/manifests", web); code != http.StatusUnauthorized {
		t.Errorf("nobody: %d %s", code, text)
	}
	r.eventually("submissions are taken", func() bool { // the journal is read first
		code, _ := ask(&own, "GET", "/manifests/default/web", "")
		return code != http.StatusServiceUnavailable
	})
	for _, step := range []struct {
		method, path, text string
		want               int
	}{
		{"PUT", "/manifests/default/web", web, http.StatusNotFound},
		{"POST", "/manifests", web, http.StatusCreated},
		{"POST", "/manifests", strings.Replace(web, "one", "two", 1), http.StatusConflict},
		{"PUT", "/manifests/default/other", web, http.StatusNotFound},
		{"POST", "/manifests", fmt.Sprintf(settings, "red"), http.StatusCreated},
		{"POST", "/manifests", fmt.Sprintf(settings, "red"), http.StatusOK},
		{"POST", "/manifests", fmt.Sprintf(settings, "blue"), http.StatusConflict},
		{"GET", "/manifests/default/web", "", http.StatusOK},
	} {
		if code, text := ask(&own, step.method, step.path, step.text); code != step.want {
			t.Errorf("%s %s: %d %s, want %d", step.method, step.path, code, text, step.want)
		}
	}
	running := func() bool {
		_, text := ask(&own, "GET", "/pods", "")
		return strings.Contains(text, `"phase":"Running"`)
	}
	for deadline := time.Now().Add(waitLimit); !running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the pod does not run")
		}
	}
	if code, text := ask(&own, "PUT", "/manifests/default/web", strings.Replace(web, "one", "two", 1)); code != http.StatusCreated && code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask(&own, "DELETE", "/manifests/default/web", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	if _, text := ask(&own, "GET", "/manifests", ""); strings.Contains(text, "web") {
		t.Errorf("it is there still: %s", text)
	}
	r.stop()
}
