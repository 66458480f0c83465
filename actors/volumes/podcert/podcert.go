// Package podcert requests certificates for projected volumes (KEP-4317) with PodCertificateRequests, and renews them. Keys and
// certificates are only in memory, and never in an error. After a restart of the agent each certificate is requested again; the
// volume keeps the files of the old one until then.
package podcert

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	beta "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

const (
	// requestTimeout limits the requests of one call of Get.
	requestTimeout = 10 * time.Second
	// retryAfter is the delay before a failed renewal is retried, while the old certificate is there.
	retryAfter = 30 * time.Second
	// patience is how long a signer may take until that counts as a failure.
	patience = time.Minute
	// overdueAfter is the kubelet's delay between the time to renew a certificate and the report that it is overdue.
	overdueAfter = 10 * time.Minute
	// maxJitter is the kubelet's. It spreads the renewals of many pods.
	maxJitter = 5 * time.Minute
)

// polls is the back-off between reads of a request that is in progress. A signer answers within seconds or, if a person
// approves requests, after hours; a watch would be the cheaper way only for many requests at once.
var polls = backoff.Policy{First: 500 * time.Millisecond, Max: 30 * time.Second}

// Options are the parameters of New.
type Options struct {
	Client   kubernetes.Interface
	NodeName string
	// Account returns the service account of a pod.
	Account func(context.Context, *v1.Pod) (*v1.ServiceAccount, error)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Source provides certificates. It is safe for concurrent use, with one call of Get at a time for a volume.
type Source struct {
	Options
	mu    sync.Mutex
	certs map[Key]certificate
}

// Key identifies a source of a projected volume.
type Key struct {
	Pod    types.UID
	Volume string
	Index  int // in the volume's sources
}

// Credentials are a private key in PKCS #8 and the chain of its certificate, both in PEM.
type Credentials struct{ Key, Chain []byte }

// Answer is the result of Get. Events are to be recorded, also with an error.
type Answer struct {
	Credentials
	Trouble error     // of a renewal; the credentials are the old ones
	Again   time.Time // when to call Get again; zero: never
	Events  []messages.RecordEvent
}

// PendingError reports that a signer has not issued the certificate yet. Late is set after a minute.
type PendingError struct {
	error
	Late bool
}

// Unwrap returns the error with its cause.
func (e PendingError) Unwrap() error { return e.error }

// RefusedError reports that the signer denied the request or failed to issue the certificate. It is not requested again.
type RefusedError struct{ error }

// Unwrap returns the error with its cause.
func (e RefusedError) Unwrap() error { return e.error }

// certificate is the state of one source: requested first, issued, and requested again from time to time. It is a value.
type certificate struct {
	signer           string
	issued           *credentials // nil: not yet
	pair             *pair        // of the next request; nil: none
	request          *request     // in progress; nil: none
	refused          error        // a RefusedError; the source stays as it is
	denied           bool         // by the signer, which otherwise failed
	overdue, expired bool         // reported
}

type credentials struct {
	Credentials
	renew, expires time.Time
}

// pair is a private key in PEM, and the empty certificate request in DER that proves its possession.
type pair struct{ key, stub []byte }

type request struct {
	name  string
	key   []byte // the private key in PEM
	since time.Time
	reads int
}

// New returns a source. It sends nothing.
func New(o Options) *Source {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Source{Options: o, certs: map[Key]certificate{}}
}

// Forget drops the certificates of a pod at its end. A nil Source has none.
func (s *Source) Forget(pod types.UID) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.certs, func(k Key, _ certificate) bool { return k.Pod == pod })
	}
}

// Get returns the credentials of a source of the pod's volume. The first call, and one after the time to renew them, sends a
// PodCertificateRequest; later ones read it. Until the signer has answered, Get returns the old credentials, or a PendingError if
// there are none. It returns when ctx ends, and after some seconds if the API server does not answer.
func (s *Source) Get(
	ctx context.Context, pod *v1.Pod, volume string, index int, of *v1.PodCertificateProjection,
) (Answer, error) {
	key := Key{pod.UID, volume, index}
	c := s.load(key, of.SignerName)
	var err error
	var events []messages.RecordEvent
	due := c.refused == nil && c.request == nil && (c.issued == nil || !s.Now().Before(c.issued.renew))
	if due && c.pair == nil { // on a slow node it takes longer than a request may
		c.pair, err = newPair(of.KeyType)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch {
	case err != nil || c.refused != nil:
	case c.request != nil:
		c, events, err = s.read(ctx, pod, c)
	case due:
		if c.request, err = s.send(ctx, pod, of, c.pair); err == nil {
			c.pair = nil
		}
	}
	c, late := c.report(s.Now())
	s.store(key, c)
	a := Answer{Trouble: err, Again: c.next(s.Now(), err)}
	for _, e := range append(events, late...) {
		e.Object = v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion}
		e.Type, e.At = v1.EventTypeWarning, s.Now()
		a.Events = append(a.Events, e)
	}
	switch {
	case c.issued != nil:
		a.Credentials = c.issued.Credentials
		return a, nil
	case c.refused != nil:
		return a, c.refused
	case err != nil:
		return a, err
	}
	name := pod.Namespace + "/" + c.request.name
	why := messages.Cause{Code: messages.CauseCertificate, Name: of.SignerName, Detail: name}
	return a, PendingError{why.Errorf("signer %s has not issued the certificate of PodCertificateRequest %s yet", of.SignerName,
		name), s.Now().Sub(c.request.since) > patience}
}

// load returns the state of a source, and registers a new one.
func (s *Source) load(key Key, signer string) certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.certs[key]
	c.signer = signer
	s.certs[key] = c
	return c
}

// store keeps the state of a source, unless its pod was forgotten meanwhile.
func (s *Source) store(key Key, c certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.certs[key]; known {
		s.certs[key] = c
	}
}

// next returns when to call Get again, after the error of a request.
func (c certificate) next(now time.Time, err error) time.Time {
	switch {
	case c.refused != nil:
		return time.Time{}
	case err != nil:
		return now.Add(retryAfter)
	case c.request != nil:
		return now.Add(polls.After(c.request.reads+1, 0))
	}
	return c.issued.renew
}

// report returns the Events of a certificate that should have been renewed, each once. Reasons and times are the kubelet's.
func (c certificate) report(now time.Time) (certificate, []messages.RecordEvent) {
	var events []messages.RecordEvent
	if c.issued == nil || c.refused != nil {
		return c, nil
	}
	if !c.overdue && now.After(c.issued.renew.Add(overdueAfter)) {
		c.overdue = true
		events = append(events, messages.RecordEvent{Reason: "CertificateOverdueForRefresh",
			Message: "signer " + c.signer + " has not renewed the pod's certificate yet"})
	}
	if !c.expired && now.After(c.issued.expires) {
		c.expired = true
		events = append(events, messages.RecordEvent{Reason: "CertificateExpired",
			Message: "the pod's certificate of signer " + c.signer + " has expired"})
	}
	return c, events
}

// send creates a request.
func (s *Source) send(ctx context.Context, pod *v1.Pod, of *v1.PodCertificateProjection, p *pair) (*request, error) {
	account, err := s.Account(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	node, err := s.Client.CoreV1().Nodes().Get(ctx, s.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", s.NodeName, err)
	}
	desired := &beta.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "req-", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}},
		Spec: beta.PodCertificateRequestSpec{
			SignerName: of.SignerName, PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: account.Name,
			ServiceAccountUID: account.UID, NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: of.MaxExpirationSeconds, StubPKCS10Request: p.stub,
			UnverifiedUserAnnotations: of.UserAnnotations,
		},
	}
	made, err := apiclient.AwaitGraph(ctx, pod, func(ctx context.Context) (*beta.PodCertificateRequest, error) {
		return s.Client.CertificatesV1beta1().PodCertificateRequests(pod.Namespace).Create(ctx, desired, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("a PodCertificateRequest for signer %s: %w", of.SignerName, err)
	}
	return &request{name: made.Name, key: p.key, since: s.Now()}, nil
}

// read reads the request in progress. If the request was deleted, the next call sends another.
func (s *Source) read(ctx context.Context, pod *v1.Pod, c certificate) (certificate, []messages.RecordEvent, error) {
	name := pod.Namespace + "/" + c.request.name
	got, err := apiclient.AwaitGraph(ctx, pod, func(ctx context.Context) (*beta.PodCertificateRequest, error) {
		return s.Client.CertificatesV1beta1().PodCertificateRequests(pod.Namespace).Get(ctx, c.request.name, metav1.GetOptions{})
	})
	switch {
	case apiclient.Absent(err):
		c.request = nil
		return c, nil, fmt.Errorf("PodCertificateRequest %s was deleted before the signer answered", name)
	case err != nil:
		return c, nil, fmt.Errorf("PodCertificateRequest %s: %w", name, err)
	}
	again := *c.request
	again.reads++
	c.request = &again
	return c.answered(got, name, s.Now())
}

// answered applies the status of the request, which has at most one of the three conditions.
func (c certificate) answered(got *beta.PodCertificateRequest, name string, now time.Time) (
	certificate, []messages.RecordEvent, error,
) {
	for _, condition := range got.Status.Conditions {
		switch condition.Type {
		case beta.PodCertificateRequestConditionTypeIssued:
			fresh := &credentials{Credentials: Credentials{Key: c.request.key, Chain: certificates(got.Status.CertificateChain)}}
			if len(fresh.Chain) == 0 || got.Status.NotAfter == nil || got.Status.BeginRefreshAt == nil {
				return c, nil, fmt.Errorf("PodCertificateRequest %s is issued without a certificate or its dates", name)
			}
			fresh.expires = got.Status.NotAfter.Time
			fresh.renew = got.Status.BeginRefreshAt.Add(jitter(fresh.expires.Sub(got.Status.BeginRefreshAt.Time) / 2))
			if !fresh.renew.After(now) { // or requests would follow each other without a pause
				fresh.renew = now.Add(retryAfter)
			}
			return certificate{signer: c.signer, issued: fresh}, nil, nil
		case beta.PodCertificateRequestConditionTypeDenied, beta.PodCertificateRequestConditionTypeFailed:
			c.denied = condition.Type == beta.PodCertificateRequestConditionTypeDenied
			verb := "failed"
			if c.denied {
				verb = "was denied"
			}
			why := messages.Cause{Code: messages.CauseCertificate, Name: c.signer, Detail: name}
			c.request, c.refused = nil, RefusedError{why.Errorf("PodCertificateRequest %s of signer %s %s: %s", name, c.signer,
				verb, cmp.Or(condition.Message, condition.Reason, "the signer gives no reason"))}
			return c, []messages.RecordEvent{{Reason: condition.Type, Message: c.refused.Error()}}, nil
		}
	}
	return c, nil, nil
}

// jitter returns a random duration below both limits.
func jitter(limit time.Duration) time.Duration {
	limit = min(limit, maxJitter)
	if limit <= 0 {
		return 0
	}
	return time.Duration(mathrand.Int64N(int64(limit))) //nolint:gosec // the jitter is not a secret
}

func newPair(kind string) (*pair, error) {
	var private crypto.Signer
	var err error
	switch kind {
	case "RSA3072":
		private, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		private, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("keyType %q of a projected podCertificate is not one of RSA3072, RSA4096, ECDSAP256, ECDSAP384, "+
			"ECDSAP521, ED25519", kind)
	}
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	return &pair{pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), stub}, err
}

// certificates returns the certificates of a chain in PEM, without headers and comments.
func certificates(chain string) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	return out.Bytes()
}

// state returns the state's name in the kubelet's metric.
func (c certificate) state(now time.Time) string {
	switch {
	case c.denied:
		return "denied"
	case c.refused != nil:
		return "failed"
	case c.issued == nil:
		return "not_yet_issued"
	case now.After(c.issued.expires):
		return "expired"
	case now.After(c.issued.renew.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// Describe implements prometheus.Collector.
func (s *Source) Describe(out chan<- *prometheus.Desc) {
	metrics.PodCertificates(s.states).Describe(out)
}

// Collect implements prometheus.Collector.
func (s *Source) Collect(out chan<- prometheus.Metric) {
	metrics.PodCertificates(s.states).Collect(out)
}

// states returns the number of certificates by signer and state, as the kubelet's metric has it.
func (s *Source) states() map[[2]string]int {
	out := map[[2]string]int{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.certs {
		out[[2]string{c.signer, c.state(s.Now())}]++
	}
	return out
}
