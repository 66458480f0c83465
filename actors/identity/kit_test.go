package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// The library's manager, once stopped, sleeps on until the next rotation.
func TestMain(m *testing.M) {
	const manager = "k8s.io/client-go/util/certificate.(*manager).run"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(manager), goleak.IgnoreAnyFunction(manager+".func1"))
}

// limit bounds a wait; only a hang reaches it.
const limit = 5 * time.Minute

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatal("waited for: " + what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// apiServer signs certificates like the real one, when the test permits. The certificate or token of a request identifies its
// client.
type apiServer struct {
	*httptest.Server
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey

	mu       sync.Mutex
	changed  chan struct{} // closed at each change
	requests []*certificatesv1.CertificateSigningRequest
	askers   []string // the client of each request
	life     func() (from, to time.Time)
	seen     map[string]int // requests of Nodes, by serial number of the client's certificate
	refused  string         // the client that is no longer authenticated
	block    chan struct{}  // held by GETs of the node "slow"
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{changed: make(chan struct{}), seen: map[string]int{}, block: make(chan struct{})}
	s.life = func() (time.Time, time.Time) { return time.Now().Add(-time.Minute), time.Now().Add(time.Hour) }
	var err error
	if s.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if s.ca, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "ca"}, s.caKey); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	pool := x509.NewCertPool()
	pool.AddCert(s.ca)
	s.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// kubeconfig writes one with this token, changed.
func (s *apiServer) kubeconfig(t *testing.T, token string, changes ...func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	server, user := &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: ca}, &clientcmdapi.AuthInfo{Token: token}
	for _, change := range changes {
		change(server, user)
	}
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": server},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func asker(r *http.Request) string {
	if len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return r.Header.Get("Authorization")
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code)})
	}
	name, isNode := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	s.mu.Lock()
	refused := s.refused
	s.mu.Unlock()
	switch {
	case asker(r) == refused:
		fail(http.StatusUnauthorized)
	case isNode:
		if name == "slow" {
			<-s.block
		}
		if len(r.TLS.PeerCertificates) > 0 {
			s.mu.Lock()
			s.seen[r.TLS.PeerCertificates[0].SerialNumber.String()]++
			s.mu.Unlock()
		}
		_ = json.NewEncoder(w).Encode(corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: asker(r)}})
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		csr := &certificatesv1.CertificateSigningRequest{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, csr); err != nil {
			fail(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		csr.TypeMeta = metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1"}
		csr.Name, csr.UID = fmt.Sprintf("csr-%d", len(s.requests)+1), types.UID(fmt.Sprint(len(s.requests)+1))
		csr.ResourceVersion = "1"
		s.requests, s.askers = append(s.requests, csr), append(s.askers, asker(r))
		s.mu.Unlock()
		s.tell()
		_ = json.NewEncoder(w).Encode(csr)
	case r.URL.Query().Get("sendInitialEvents") != "":
		fail(http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	default:
		list := certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{Kind: "CertificateSigningRequestList",
			APIVersion: "certificates.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		csr, _ := s.request(strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
		list.Items = append(list.Items, *csr)
		_ = json.NewEncoder(w).Encode(list)
	}
}

// watch sends the request each time that something changes.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	for {
		csr, changed := s.request(strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": csr})
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// request returns a copy of a request, and a channel that is closed at the next change.
func (s *apiServer) request(name string) (*certificatesv1.CertificateSigningRequest, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.requests, func(r *certificatesv1.CertificateSigningRequest) bool { return r.Name == name })
	return s.requests[i].DeepCopy(), s.changed
}

func (s *apiServer) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitRequest waits for the n-th request, from 1, and returns its body.
func (s *apiServer) awaitRequest(t *testing.T, n int) *x509.CertificateRequest {
	t.Helper()
	eventually(t, fmt.Sprintf("request %d", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.requests) >= n
	})
	csr, _ := s.request(fmt.Sprintf("csr-%d", n))
	block, _ := pem.Decode(csr.Spec.Request)
	out, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sign returns a certificate for the request.
func (s *apiServer) sign(t *testing.T, asked *x509.CertificateRequest, serial int64, usage x509.ExtKeyUsage) []byte {
	t.Helper()
	from, to := s.life()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: asked.Subject,
		DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses, NotBefore: from, NotAfter: to,
		ExtKeyUsage: []x509.ExtKeyUsage{usage}}, s.ca, asked.PublicKey, s.caKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// approve approves and signs the n-th request.
func (s *apiServer) approve(t *testing.T, n int) {
	t.Helper()
	asked, usage := s.awaitRequest(t, n), x509.ExtKeyUsageClientAuth
	s.mu.Lock()
	csr := s.requests[n-1]
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		usage = x509.ExtKeyUsageServerAuth
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	csr.Status.Certificate = s.sign(t, asked, int64(n), usage)
	s.mu.Unlock()
	s.tell()
}

// clientPair is a file with a client certificate and its key, of this life.
func (s *apiServer) clientPair(t *testing.T, path string, from, to time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	life := s.life
	s.life = func() (time.Time, time.Time) { return from, to }
	chain := s.sign(t, &x509.CertificateRequest{Subject: nodeSubject("n1"), PublicKey: key.Public()}, 99, x509.ExtKeyUsageClientAuth)
	s.life = life
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(chain, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// open makes a Client; the test ends it.
func open(t *testing.T, o ClientOptions) *Client {
	t.Helper()
	o.NodeName, o.Log = "n1", slog.New(slog.DiscardHandler)
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// dial makes a client of its configuration.
func dial(t *testing.T, c *Client) kubernetes.Interface {
	t.Helper()
	config := c.Config()
	if config.Transport == nil { // else client-go would keep the connection for later
		config.Dial = (&net.Dialer{}).DialContext
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := config.Transport.(*rotatingTransport); ok {
		t.Cleanup(r.CloseIdleConnections)
	}
	return client
}
