package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

func serving(t *testing.T, o ServingOptions) *ServingCertificate {
	t.Helper()
	o.NodeName, o.Log = "n1", slog.New(slog.DiscardHandler)
	s := NewServing(o)
	t.Cleanup(s.Close)
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	return s
}

// shown is the certificate that a client is shown, and the names of CAs that it is asked for one of.
func shown(t *testing.T, config *tls.Config) (leaf *x509.Certificate, cas [][]byte) {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = ours.Close() }()
		_, _ = io.Copy(io.Discard, tls.Server(ours, config))
	}()
	client := tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cas = r.AcceptableCAs
		return &tls.Certificate{}, nil
	}})
	if err := client.HandshakeContext(t.Context()); err == nil {
		leaf = client.ConnectionState().PeerCertificates[0]
	}
	_ = theirs.Close()
	<-done
	return leaf, cas
}

func noCAs() *x509.CertPool { return nil }

func config(t *testing.T, s *ServingCertificate, k kubeletconfig.KubeletConfiguration) *tls.Config {
	t.Helper()
	out, err := s.TLS(&k, noCAs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	s := serving(t, ServingOptions{CertDir: dir})
	leaf, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{}))
	if leaf == nil || !slices.Contains(leaf.DNSNames, "n1") {
		t.Fatalf("shown %v", leaf)
	}
	for name, mode := range map[string]os.FileMode{"kubelet.crt": 0o644, "kubelet.key": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	// The next start shows the same; a month before its end there is another.
	if again, _ := shown(t, config(t, serving(t, ServingOptions{CertDir: dir}), kubeletconfig.KubeletConfiguration{})); !again.Equal(leaf) {
		t.Error("each start makes another")
	}
	if err := s.signSelf(leaf.NotAfter.Add(-renewSelfSigned).Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if pair, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile); err != nil || !pair.Leaf.Equal(leaf) {
		t.Errorf("renewed too early: %v", err)
	}
	if err := s.signSelf(leaf.NotAfter.Add(-renewSelfSigned).Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if pair, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile); err != nil || pair.Leaf.Equal(leaf) {
		t.Errorf("not renewed: %v", err)
	}
	// After the clock was set back, clients would call a pair of before not valid yet.
	pair, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.signSelf(pair.Leaf.NotBefore.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if next, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile); err != nil || next.Leaf.Equal(pair.Leaf) {
		t.Errorf("not renewed after the clock was set back: %v", err)
	}
	// A key of another pair, as of a power cut while the two are written, is no pair.
	_, other, err := cert.GenerateSelfSignedCertKey("n1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.opts.KeyFile, other, 0o600); err != nil {
		t.Fatal(err)
	}
	if next, _ := shown(t, config(t, serving(t, ServingOptions{CertDir: dir}), kubeletconfig.KubeletConfiguration{})); next == nil {
		t.Error("nothing is shown after a key without its certificate")
	}
	// A broken one is replaced, too.
	if err := os.WriteFile(s.opts.CertFile, []byte("half a certif"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renewed one is shown", func() bool {
		now, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{}))
		return now != nil && !now.Equal(leaf)
	})
}

// Files are read again when they change; a pair that does not fit changes nothing.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	o := ServingOptions{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	write := func(host string) {
		chain, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range map[string][]byte{o.CertFile: chain, o.KeyFile: key} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	none := NewServing(o)
	if err := none.ensure(); err == nil || !strings.Contains(err.Error(), o.CertFile+" (tlsCertFile)") {
		t.Errorf("without files: %v", err)
	}
	none.Close()
	write("first")
	s := serving(t, o)
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	of := func() string {
		leaf, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{}))
		return leaf.DNSNames[0]
	}
	if of() != "first" {
		t.Fatal(of())
	}
	write("second")
	eventually(t, "the second pair", func() bool { return of() == "second" })
	if state := s.state(nil, time.Now()); !strings.HasPrefix(state.Subject, "CN=second@") || state.NotAfter.IsZero() {
		t.Errorf("%+v", state)
	}
	for _, path := range []string{o.CertFile, o.KeyFile} { // e.g. a full disk, or a wrong file
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
		if p := problems([]Certificate{s.state(nil, time.Now())}, time.Now()); len(p) != 1 || !strings.Contains(p[0], o.CertFile) ||
			!strings.Contains(p[0], "the previous certificate stays in force") {
			t.Errorf("with garbage in %s: got problems %q", path, p)
		}
		if of() != "second" {
			t.Errorf("with garbage in %s: got the certificate of %q", path, of())
		}
		if err := os.WriteFile(path, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if p := problems([]Certificate{s.state(nil, time.Now())}, time.Now()); len(p) > 0 {
		t.Errorf("with a good pair again: got problems %q", p)
	}
}

// An expired certificate, and one that is not valid yet, is shown to clients and reported; the listener stays.
func TestFiles_OutsideTheirTime(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		from, to time.Duration
		want     string
	}{
		"expired":       {-2 * time.Hour, -time.Hour, "the serving certificate expired on "},
		"not yet valid": {time.Hour, 2 * time.Hour, "the serving certificate is not valid before "},
	} {
		o := ServingOptions{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		of := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(c.from), NotAfter: now.Add(c.to), DNSNames: []string{name}}
		der, err := x509.CreateCertificate(rand.Reader, &of, &of, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for path, block := range map[string]*pem.Block{o.CertFile: {Type: "CERTIFICATE", Bytes: der}, o.KeyFile: {Type: "PRIVATE KEY", Bytes: text}} {
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := serving(t, o)
		if err := s.ensure(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if leaf, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{})); leaf == nil || leaf.DNSNames[0] != name {
			t.Errorf("%s: clients get the certificate %+v", name, leaf)
		}
		if p := problems([]Certificate{s.state(nil, time.Now())}, now); len(p) != 1 || !strings.HasPrefix(p[0], c.want) {
			t.Errorf("%s: got problems %q, want %q", name, p, c.want)
		}
	}
}

// A self-signed certificate is renewed while the agent runs, and clients get the new one.
func TestSelfSigned_IsRenewedInTime(t *testing.T) {
	s := serving(t, ServingOptions{CertDir: t.TempDir()})
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	listener := config(t, s, kubeletconfig.KubeletConfiguration{})
	first, _ := shown(t, listener)
	for name, c := range map[string]struct {
		now   time.Time
		renew bool
	}{"fresh": {time.Now(), false}, "near its end": {first.NotAfter.Add(-renewSelfSigned).Add(time.Minute), true}} {
		if got := s.state(nil, c.now); got.Error != "" {
			t.Errorf("%s: %s", name, got.Error)
		}
		if c.renew {
			eventually(t, "clients get another certificate", func() bool {
				leaf, _ := shown(t, listener)
				return leaf != nil && !leaf.Equal(first)
			})
		}
	}
}

// The signer gets a request with the node's addresses, and another one when they change.
func TestServingByRequest(t *testing.T) {
	api, dir := newAPIServer(t), t.TempDir()
	var addresses atomic.Pointer[[]corev1.NodeAddress]
	set := func(list ...corev1.NodeAddress) { addresses.Store(&list) }
	set(corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
	client := open(t, ClientOptions{Kubeconfig: api.kubeconfig(t, "node"), CertDir: dir})
	s := serving(t, ServingOptions{CertDir: dir, Bootstrap: true, Client: dial(t, client), Addresses: func() []corev1.NodeAddress { return *addresses.Load() }})
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	if leaf, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{})); leaf != nil {
		t.Error("something is shown before anything was issued")
	}
	set(corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"}, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.7"})
	asked := api.awaitRequest(t, 1)
	if asked.Subject.CommonName != "system:node:n1" || !slices.Equal(asked.DNSNames, []string{"n1"}) || len(asked.IPAddresses) != 1 {
		t.Errorf("asked for %+v", asked)
	}
	eventually(t, "the request is told", func() bool { r := s.state(nil, time.Now()).Request; return r != nil && r.Name == "csr-1" })
	api.approve(t, 1)
	eventually(t, "the certificate is shown", func() bool {
		leaf, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{}))
		return leaf != nil && leaf.VerifyHostname("192.0.2.7") == nil
	})
	set(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.8"})
	api.approve(t, 2)
	eventually(t, "the certificate of the new address is shown", func() bool {
		leaf, _ := shown(t, config(t, s, kubeletconfig.KubeletConfiguration{}))
		return leaf != nil && leaf.VerifyHostname("192.0.2.8") == nil
	})
	if _, err := os.Stat(filepath.Join(dir, "kubelet-server-current.pem")); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	s := serving(t, ServingOptions{CertDir: t.TempDir()})
	k := kubeletconfig.KubeletConfiguration{TLSMinVersion: "VersionTLS12",
		TLSCipherSuites: []string{"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"}, TLSCurvePreferences: []int32{int32(tls.X25519)}}
	got := config(t, s, k)
	if got.MinVersion != tls.VersionTLS12 || !slices.Equal(got.CipherSuites, []uint16{tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256}) ||
		!slices.Equal(got.CurvePreferences, []tls.CurveID{tls.X25519}) || !slices.Equal(got.NextProtos, []string{"http/1.1"}) {
		t.Errorf("%+v", got)
	}
	for _, bad := range []kubeletconfig.KubeletConfiguration{
		{TLSMinVersion: "VersionTLS9"}, {TLSCipherSuites: []string{"TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"}}, {TLSCurvePreferences: []int32{-1}},
	} {
		if _, err := s.TLS(&bad, noCAs); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	// The client CAs' names are current at each handshake.
	api := newAPIServer(t)
	pool := x509.NewCertPool()
	pool.AddCert(api.ca)
	var now atomic.Pointer[x509.CertPool]
	with, err := s.TLS(&kubeletconfig.KubeletConfiguration{}, now.Load)
	if err != nil {
		t.Fatal(err)
	}
	if _, cas := shown(t, with); len(cas) != 0 {
		t.Errorf("%d CAs are named", len(cas))
	}
	now.Store(pool)
	if _, cas := shown(t, with); len(cas) != 1 || string(cas[0]) != string(api.ca.RawSubject) {
		t.Errorf("%q are named", cas)
	}
}

// A file that cannot be read may be good: nothing is written over it. Once it is out of the way, a pair is made.
func TestSelfSigned_UnreadablePairStays(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, selfSignedCert)
	if err := os.Mkdir(inTheWay, 0o700); err != nil { // reading it is an error, for root as well
		t.Fatal(err)
	}
	s := NewServing(ServingOptions{NodeName: "n1", CertDir: dir, Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	listener := config(t, s, kubeletconfig.KubeletConfiguration{})
	for range 2 {
		err := s.ensure()
		if leaf, _ := shown(t, listener); err == nil || leaf != nil || s.state(err, time.Now()).Error == "" {
			t.Errorf("%v, shown %v", err, leaf)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, selfSignedKey)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was written: %v", err)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	if leaf, _ := shown(t, listener); leaf == nil {
		t.Error("nothing is shown")
	}
	s.Close()
	if err := s.Prepare(); err != nil {
		t.Errorf("what is in force: %v", err)
	}
}
