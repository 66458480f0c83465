package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
)

// ClientOptions are the sources of this node's credentials for the API server.
type ClientOptions struct {
	NodeName string
	// Kubeconfig and Bootstrap are the paths of --kubeconfig and --bootstrap-kubeconfig; Bootstrap may be empty.
	Kubeconfig, Bootstrap string
	// CertDir is where certificates are kept that were asked for (--cert-dir), in the kubelet's files.
	CertDir string
	// Rotate asks for a new client certificate before the one in force expires (rotateCertificates).
	Rotate bool
	Log    *slog.Logger
}

// Client holds this node's credentials for the API server. Safe for concurrent use.
//
// The kubeconfig's credentials are used as they are. There are two exceptions: a client certificate that is to be rotated,
// and a node without credentials. Then a certificate is requested from the signer
// kubernetes.io/kube-apiserver-client-kubelet. The request uses the certificate in force, or the credentials of the bootstrap
// kubeconfig (TLS bootstrap). Until the certificate is issued, each request fails at once, with the reason for the wait.
type Client struct {
	opts     ClientOptions
	base     *rest.Config   // the API server; with credentials where no certificate is managed
	manager  *steadyManager // nil: the kubeconfig's own credentials
	requests requests
	unsaved  string // why the kubeconfig could not be written

	ctx  context.Context // the process': it ends with Close
	stop context.CancelFunc

	mu     sync.Mutex
	itself kubernetes.Interface // asks with the certificate in force
}

// NewClient reads the kubeconfig, or the one for the bootstrap where that has no good credentials. Nothing is sent; ensure begins
// the bootstrap and the rotation. An error names the flag and the file.
func NewClient(o ClientOptions) (*Client, error) {
	c := &Client{opts: o}
	c.ctx, c.stop = context.WithCancel(apiclient.Quiet(context.Background()))
	bootstraps, err := c.read()
	if err == nil && (bootstraps || o.Rotate && hasCertificate(c.base)) {
		err = c.manage()
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// read finds the API server, and returns whether a first certificate must be requested.
func (c *Client) read() (bootstraps bool, err error) {
	o := c.opts
	config, err := load(o.Kubeconfig)
	if err == nil && o.Bootstrap != "" {
		err = good(config, time.Now())
	}
	if err == nil {
		c.base = config
		return false, nil
	}
	err = explained("--kubeconfig", o.Kubeconfig, err)
	if o.Bootstrap == "" {
		return false, err
	}
	first, bootErr := load(o.Bootstrap)
	if bootErr != nil {
		return false, errors.Join(err, explained("--bootstrap-kubeconfig", o.Bootstrap, bootErr))
	}
	o.Log.Info("a client certificate is asked for with the credentials of --bootstrap-kubeconfig", "error", err)
	c.base = rest.AnonymousClientConfig(first)
	return true, nil
}

// manage has the client certificate kept in the certificate folder, and asked for.
func (c *Client) manage() error {
	store, err := certificate.NewFileStoreWithLogger(klog.Logger{}, "kubelet-client", c.opts.CertDir, c.opts.CertDir,
		c.base.CertFile, c.base.KeyFile)
	if err != nil {
		return fmt.Errorf("--cert-dir=%s cannot be used: %w", c.opts.CertDir, err)
	}
	if !hasCertificate(c.base) { // so that the next start, and a kubelet's, finds the certificate
		if err := writeKubeconfig(c.opts.Kubeconfig, c.base, store.CurrentPath()); err != nil {
			c.unsaved = fmt.Sprintf("--kubeconfig=%s cannot be written; the next start has to read --bootstrap-kubeconfig "+
				"again: %v", c.opts.Kubeconfig, err)
		}
	}
	c.manager, err = newSteady(c.ctx, c.opts.Log, func(ctx context.Context, again bool) (certificate.Manager, error) {
		// For an expired certificate the library stores the kubeconfig's in its place. Later that one may be older.
		chain, key := c.base.CertData, c.base.KeyData
		if again {
			chain, key = nil, nil
		}
		return certificate.NewManager(&certificate.Config{
			ClientsetFn:             c.asking,
			Template:                &x509.CertificateRequest{Subject: nodeSubject(c.opts.NodeName)},
			SignerName:              certificatesv1.KubeAPIServerClientKubeletSignerName,
			GetUsages:               certificate.DefaultKubeletClientGetUsages,
			CertificateStore:        onceOnly{forgivingStore{store, c.opts.Log}, c},
			CertificateRenewFailure: metrics.ClientRenewErrors.WithLabelValues(),
			BootstrapCertificatePEM: chain, BootstrapKeyPEM: key, Ctx: &ctx,
		})
	})
	if err != nil {
		return fmt.Errorf("the client certificate in --cert-dir=%s cannot be used: %w", c.opts.CertDir, err)
	}
	return nil
}

// onceOnly ends the asking with the first certificate where rotateCertificates is off.
type onceOnly struct {
	certificate.Store
	c *Client
}

func (o onceOnly) Update(chain, key []byte) (*tls.Certificate, error) {
	pair, err := o.Store.Update(chain, key)
	if err == nil && !o.c.opts.Rotate {
		o.c.stop()
	}
	return pair, err
}

// asking is the client that asks for a certificate: with the one in force or, where there is none, with the credentials of the
// bootstrap, which are read again each time, since their token may have been replaced.
func (c *Client) asking(current *tls.Certificate) (kubernetes.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if current != nil {
		if c.itself == nil {
			itself, err := kubernetes.NewForConfig(c.Config())
			if err != nil {
				return nil, err
			}
			c.itself = itself
		}
		return c.requests.observed(c.itself, c.opts.NodeName, c.opts.Log), nil
	}
	config := c.base
	if c.opts.Bootstrap != "" {
		var err error
		if config, err = load(c.opts.Bootstrap); err != nil {
			err = explained("--bootstrap-kubeconfig", c.opts.Bootstrap, err)
			c.requests.asked(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName}}, err.Error(), time.Now())
			return nil, err
		}
	}
	first, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return c.requests.observed(first, c.opts.NodeName, c.opts.Log), nil
}

// Config is the configuration of one client, with connections of its own where a certificate is managed.
func (c *Client) Config() *rest.Config {
	if c.manager == nil {
		return rest.CopyConfig(c.base)
	}
	out := rest.AnonymousClientConfig(c.base)
	if url, _, err := rest.DefaultServerUrlFor(c.base); err == nil {
		out.Host = url.String()
	}
	// The transport has these settings already; client-go rejects them in both places.
	out.TLSClientConfig, out.Proxy = rest.TLSClientConfig{}, nil
	own := &rotatingTransport{certificate: c.current, make: c.transport}
	if c.base.CAFile != "" && len(c.base.CAData) == 0 {
		own.roots = func() ([]byte, error) { return atomicfile.ReadFile(c.base.CAFile, maxRoots) }
	}
	out.Transport = own
	return out
}

// maxRoots limits the size of a file of certificate authorities, in bytes.
const maxRoots = 4 << 20

// Server is the API server's address, as the kubeconfig has it.
func (c *Client) Server() string { return c.base.Host }

// current returns the client certificate in force, or an error with the reason for the wait.
func (c *Client) current() (*tls.Certificate, error) {
	if pair := c.manager.Current(); pair != nil {
		return pair, nil
	}
	if r := c.requests.open(); r != nil {
		return nil, apiclient.NoCredentials(fmt.Sprintf("this node has no client certificate: %s", r))
	}
	return nil, apiclient.NoCredentials("this node has no client certificate, or it has expired")
}

// transport makes one that shows this certificate.
func (c *Client) transport(pair *tls.Certificate) (*http.Transport, error) {
	config, err := rest.TLSConfigFor(rest.AnonymousClientConfig(c.base))
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy: c.base.Proxy, TLSClientConfig: config, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
	}), nil
}

// ensure begins the bootstrap or the rotation, and plans it again after the clock was set.
func (c *Client) ensure() {
	if c.manager == nil || !c.opts.Rotate && c.manager.Current() != nil {
		return
	}
	c.manager.Start()
}

// Close ends the asking for certificates. The one that is in force stays in force.
func (c *Client) Close() { c.stop() }
