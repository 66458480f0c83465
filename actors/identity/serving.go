package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
)

// ServingOptions are the sources of the certificate for port 10250.
type ServingOptions struct {
	NodeName string
	// CertFile and KeyFile are tlsCertFile and tlsPrivateKeyFile. Where they are empty and Bootstrap is off, a self-signed pair
	// is made: kubelet.crt and kubelet.key in CertDir.
	CertFile, KeyFile, CertDir string
	// Bootstrap asks the API server for a certificate (serverTLSBootstrap), by Client, for Addresses. Without an IP address among
	// them none is asked for.
	Bootstrap bool
	Client    kubernetes.Interface
	Addresses func() []corev1.NodeAddress
	Log       *slog.Logger
}

const (
	selfSignedCert, selfSignedKey = "kubelet.crt", "kubelet.key"
	// renewSelfSigned is how long before its end a self-signed pair is replaced. It is made for a year.
	renewSelfSigned = 30 * 24 * time.Hour
)

// ServingCertificate has the certificate that port 10250 shows, and its successors. Safe for concurrent use.
type ServingCertificate struct {
	opts       ServingOptions
	selfSigned bool
	requests   requests

	ctx   context.Context // the process': it ends with Close
	stop  context.CancelFunc
	start sync.Once
	runs  sync.WaitGroup

	mu      sync.Mutex
	current func() *tls.Certificate // nil until Prepare has succeeded
	run     func(ctx context.Context)
	replan  func() // plans the rotation again after the clock was set; nil: there is none
}

// NewServing reads and sends nothing; Prepare does.
func NewServing(o ServingOptions) *ServingCertificate {
	s := &ServingCertificate{opts: o, selfSigned: !o.Bootstrap && o.CertFile == "" && o.KeyFile == ""}
	s.ctx, s.stop = context.WithCancel(apiclient.Quiet(context.Background()))
	if s.selfSigned {
		s.opts.CertFile, s.opts.KeyFile = filepath.Join(o.CertDir, selfSignedCert), filepath.Join(o.CertDir, selfSignedKey)
	}
	return s
}

// Prepare reads the certificate, makes a self-signed one, or prepares a request that ensure starts. An error names the files.
// Calling it again repeats a failed attempt, and does nothing after a success.
func (s *ServingCertificate) Prepare() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.current != nil:
		return nil
	case s.ctx.Err() != nil:
		return errors.New("the agent is shutting down")
	case s.opts.Bootstrap:
		return s.byRequest()
	case s.selfSigned:
		if err := s.signSelf(time.Now()); err != nil {
			return fmt.Errorf("there is no serving certificate: %w", err)
		}
	}
	return s.byFiles()
}

// byFiles takes the certificate from the files, and again whenever they change.
func (s *ServingCertificate) byFiles() error {
	fail := s.unusable
	// Read before the library does, which leaves goroutines behind where it cannot.
	if _, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile); err != nil {
		return fail(err)
	}
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", s.opts.CertFile, s.opts.KeyFile)
	if err != nil {
		return fail(err)
	}
	pair := &parsedPair{files: files, log: s.opts.Log}
	pair.Enqueue()
	files.AddListener(pair)
	s.current = pair.p.Load
	s.run = func(ctx context.Context) { files.Run(ctx, 1) }
	return nil
}

func (s *ServingCertificate) unusable(err error) error {
	return fmt.Errorf("the serving certificate %s (tlsCertFile) and its key %s (tlsPrivateKeyFile) cannot be used: %w",
		s.opts.CertFile, s.opts.KeyFile, err)
}

// checkFiles returns an error if a certificate from files is in force and the files no longer hold a usable pair. The library
// that follows the files keeps the previous pair without notice. It renews a self-signed pair first.
func (s *ServingCertificate) checkFiles(now time.Time) error {
	if s.opts.Bootstrap || s.inForce() == nil {
		return nil
	}
	if s.selfSigned {
		if err := s.signSelf(now); err != nil {
			return fmt.Errorf("the self-signed serving certificate cannot be renewed: %w", err)
		}
	}
	if _, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile); err != nil {
		return fmt.Errorf("%w; the previous certificate stays in force", s.unusable(err))
	}
	return nil
}

// parsedPair is the pair that the files hold, parsed. It is a dynamiccertificates.Listener.
type parsedPair struct {
	files *dynamiccertificates.DynamicCertKeyPairContent
	log   *slog.Logger
	p     atomic.Pointer[tls.Certificate]
}

// Enqueue implements dynamiccertificates.Listener: the files have changed.
func (p *parsedPair) Enqueue() {
	pair, err := tls.X509KeyPair(p.files.CurrentCertKeyContent())
	if err != nil {
		p.log.Warn("keeping the previous serving certificate: the files do not contain a matching certificate and key",
			"files", p.files.Name(), "error", err)
		return
	}
	p.p.Store(&pair)
}

// signSelf makes a self-signed pair if the files are absent, expire soon, are not valid yet since the clock was set back, or do
// not match, as after a power cut between two writes. Clients do not pin this key, so that replacing it is safe. An unreadable
// disk is an error: its pair may be good.
func (s *ServingCertificate) signSelf(now time.Time) error {
	pair, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile)
	_, unreadable := errors.AsType[*fs.PathError](err) // as opposed to errors in the content
	switch {
	case err == nil && now.Before(pair.Leaf.NotAfter.Add(-renewSelfSigned)) && !now.Before(pair.Leaf.NotBefore):
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case unreadable:
		return err
	case err != nil:
		s.opts.Log.Warn("the self-signed serving certificate cannot be read; another one is made", "file", s.opts.CertFile,
			"error", err)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(s.opts.NodeName, nil, nil)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.opts.CertDir, 0o755); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(s.opts.KeyFile, key, 0o600); err != nil {
		return err
	}
	return atomicfile.WriteFile(s.opts.CertFile, chain, 0o644)
}

// byRequest asks the API server for the certificate, and for its successor before it expires or when the addresses change.
func (s *ServingCertificate) byRequest() error {
	store, err := certificate.NewFileStoreWithLogger(klog.Logger{}, "kubelet-server", s.opts.CertDir, s.opts.CertDir,
		s.opts.CertFile, s.opts.KeyFile)
	if err != nil {
		return fmt.Errorf("--cert-dir=%s cannot be used: %w", s.opts.CertDir, err)
	}
	client := s.requests.observed(s.opts.Client, s.opts.NodeName, s.opts.Log)
	m, err := newSteady(s.ctx, s.opts.Log, func(ctx context.Context, _ bool) (certificate.Manager, error) {
		return certificate.NewManager(&certificate.Config{
			ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
			GetTemplate:      func() *x509.CertificateRequest { return servingRequest(s.opts.NodeName, s.opts.Addresses()) },
			SignerName:       certificatesv1.KubeletServingSignerName,
			GetUsages:        certificate.DefaultKubeletServingGetUsages,
			CertificateStore: forgivingStore{store, s.opts.Log}, Ctx: &ctx,
			CertificateRenewFailure: metrics.ServingRenewErrors.WithLabelValues(),
			CertificateRotation:     metrics.ServingRotation.WithLabelValues(),
		})
	})
	if err != nil {
		return fmt.Errorf("the serving certificate in --cert-dir=%s cannot be used: %w", s.opts.CertDir, err)
	}
	s.current, s.replan = m.Current, m.Start
	s.run = func(context.Context) { m.Start() } // ends with s.ctx
	return nil
}

// forgivingStore is a store that treats an unreadable certificate as absent, so that it is requested again.
type forgivingStore struct {
	certificate.Store
	log *slog.Logger
}

func (f forgivingStore) Current() (*tls.Certificate, error) {
	pair, err := f.Store.Current()
	if err == nil {
		return pair, nil
	}
	if _, none := errors.AsType[*certificate.NoCertKeyError](err); !none {
		f.log.Warn("a certificate in --cert-dir cannot be read; requesting a new one", "error", err)
	}
	none := certificate.NoCertKeyError(err.Error())
	return nil, &none // the library looks for this very type
}

// servingRequest returns the request that the signer kubernetes.io/kubelet-serving accepts from a node; nil without an IP
// address.
func servingRequest(node string, addresses []corev1.NodeAddress) *x509.CertificateRequest {
	out := &x509.CertificateRequest{Subject: nodeSubject(node)}
	for _, a := range addresses {
		ip := net.ParseIP(a.Address)
		switch {
		case ip != nil && !slices.ContainsFunc(out.IPAddresses, ip.Equal):
			out.IPAddresses = append(out.IPAddresses, ip)
		case ip == nil && a.Address != "" && !slices.Contains(out.DNSNames, a.Address):
			out.DNSNames = append(out.DNSNames, a.Address)
		}
	}
	if len(out.IPAddresses) == 0 {
		return nil
	}
	slices.Sort(out.DNSNames)
	slices.SortFunc(out.IPAddresses, func(a, b net.IP) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// nodeSubject is the name by which the API server knows a node.
func nodeSubject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// ensure has the certificate followed or asked for, once, and a self-signed one renewed. It may take a second.
func (s *ServingCertificate) ensure() error {
	if err := s.Prepare(); err != nil {
		return err
	}
	s.begin()
	s.mu.Lock()
	replan := s.replan
	s.mu.Unlock()
	if replan != nil {
		replan()
	}
	if s.selfSigned {
		return s.signSelf(time.Now())
	}
	return nil
}

func (s *ServingCertificate) begin() { s.start.Do(func() { s.runs.Go(func() { s.run(s.ctx) }) }) }

// Close stops following and requesting the certificate. The one in force stays in force.
func (s *ServingCertificate) Close() {
	s.stop()
	s.mu.Lock()
	prepared := s.current != nil
	s.mu.Unlock()
	if prepared {
		s.begin() // a manager that never ran must end, too
	}
	s.runs.Wait()
}

// errNoServing ends a client's handshake on this side.
var errNoServing = errors.New("there is no serving certificate yet: the requested one has not been issued")

// inForce is the certificate that is shown; nil where there is none.
func (s *ServingCertificate) inForce() *tls.Certificate {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current == nil {
		return nil
	}
	return current()
}

func (s *ServingCertificate) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.inForce(); c != nil {
		return c, nil
	}
	return nil, errNoServing
}
