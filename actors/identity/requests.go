package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
)

// deniedFor is how long nothing is asked for after a denial: whoever denied it would have to deny it each half minute.
const deniedFor = 10 * time.Minute

// Request is a certificate signing request (CSR) that has not led to a certificate.
type Request struct {
	Name   string    `json:"name,omitempty"` // empty: it could not be made
	Signer string    `json:"signer"`
	Since  time.Time `json:"since"`
	// Approved is true after approval, while the signature is pending.
	Approved bool `json:"approved,omitempty"`
	// Denied is the reason of a denial or failure.
	Denied string `json:"denied,omitempty"`
	// Failed is the reason why the request could not be created.
	Failed string `json:"failed,omitempty"`
}

// String describes the wait of the request and its remedy. It changes only with the state of the request.
func (r Request) String() string {
	since := r.Since.UTC().Format(time.RFC3339)
	switch {
	case r.Failed != "":
		return fmt.Sprintf("a certificate of %s cannot be requested: %s", r.Signer, r.Failed)
	case r.Denied != "":
		return fmt.Sprintf("certificate request %s (%s) was denied: %s; the next one is made %s after %s", r.Name, r.Signer,
			r.Denied,
			deniedFor, since)
	case r.Approved:
		return fmt.Sprintf("certificate request %s (%s) of %s is approved and not signed yet: the signer is the cluster's "+
			"kube-controller-manager", r.Name, r.Signer, since)
	}
	return fmt.Sprintf("certificate request %s (%s) of %s waits for approval: kubectl certificate approve %s", r.Name,
		r.Signer, since,
		r.Name)
}

// requests records the state of the newest request, from the answers to its client. The certificate library does not report
// it. Safe for concurrent use.
type requests struct {
	mu   sync.Mutex
	last *Request // nil: none is open
}

// open is the request that has not led to a certificate yet; nil where there is none.
func (r *requests) open() *Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	out := *r.last
	return &out
}

// mayAsk returns an error as long as nothing is asked for because of a denial.
func (r *requests) mayAsk(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && r.last.Denied != "" && now.Sub(r.last.Since) < deniedFor {
		return errors.New("the last request was denied")
	}
	return nil
}

func (r *requests) asked(csr *certificatesv1.CertificateSigningRequest, why string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = &Request{Name: csr.Name, Signer: csr.Spec.SignerName, Since: now, Failed: why}
}

// saw takes note of the state of a request.
func (r *requests) saw(csr *certificatesv1.CertificateSigningRequest, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || r.last.Name != csr.Name {
		return
	}
	if len(csr.Status.Certificate) > 0 {
		r.last = nil
		return
	}
	for _, c := range csr.Status.Conditions {
		if c.Status == corev1.ConditionFalse || c.Status == corev1.ConditionUnknown {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateApproved:
			r.last.Approved = true
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if r.last.Denied == "" {
				r.last.Denied, r.last.Since = c.Reason+": "+c.Message, now
			}
		}
	}
}

// observed returns the client with a record of all answers about certificate requests.
func (r *requests) observed(client kubernetes.Interface, node string, log *slog.Logger) kubernetes.Interface {
	return observedClient{client, observer{r, node, log}}
}

type observer struct {
	notes *requests
	node  string
	log   *slog.Logger
}

type observedClient struct {
	kubernetes.Interface
	observer
}

func (c observedClient) CertificatesV1() typed.CertificatesV1Interface {
	return observedGroup{c.Interface.CertificatesV1(), c.observer}
}

type observedGroup struct {
	typed.CertificatesV1Interface
	observer
}

func (g observedGroup) CertificateSigningRequests() typed.CertificateSigningRequestInterface {
	return observedRequests{g.CertificatesV1Interface.CertificateSigningRequests(), g.observer}
}

type observedRequests struct {
	typed.CertificateSigningRequestInterface
	observer
}

func (o observedRequests) Create(
	ctx context.Context, csr *certificatesv1.CertificateSigningRequest, opts metav1.CreateOptions,
) (*certificatesv1.CertificateSigningRequest, error) {
	if err := o.notes.mayAsk(time.Now()); err != nil {
		return nil, err
	}
	made, err := o.CertificateSigningRequestInterface.Create(ctx, csr, opts)
	if err != nil {
		o.notes.asked(csr, apiclient.Explain(err, o.node), time.Now())
		return made, err
	}
	o.notes.asked(made, "", time.Now())
	return made, nil
}

func (o observedRequests) List(ctx context.Context, opts metav1.ListOptions) (*certificatesv1.CertificateSigningRequestList,
	error) {
	list, err := o.CertificateSigningRequestInterface.List(ctx, opts)
	if err == nil {
		for i := range list.Items {
			o.notes.saw(&list.Items[i], time.Now())
		}
	}
	return list, err
}

func (o observedRequests) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := o.CertificateSigningRequestInterface.Watch(ctx, opts)
	if err != nil {
		return w, err
	}
	return apiclient.Observe(w, o.log, "a look at what the watch of certificate requests brings", func(e watch.Event) {
		if csr, ok := e.Object.(*certificatesv1.CertificateSigningRequest); ok && e.Type != watch.Bookmark {
			o.notes.saw(csr, time.Now())
		}
	}), nil
}
