package identity

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestProblems(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour) }
	request := Request{Name: "csr-1", Signer: "s", Since: now}
	approved, denied, failed := request, request, request
	approved.Approved, denied.Denied, failed.Failed = true, "policy: no", "no way"
	for name, c := range map[string]struct {
		certificate Certificate
		want        []string
	}{
		"well":      {Certificate{NotBefore: at(-10), NotAfter: at(10)}, nil},
		"young":     {Certificate{NotBefore: at(-80), NotAfter: at(11)}, nil},
		"ends soon": {Certificate{Name: "client", NotBefore: at(-95), NotAfter: at(5)}, []string{"the client certificate expires on 2026-01-02T08:00:00Z"}},
		"ended":     {Certificate{Name: "client", NotBefore: at(-95), NotAfter: at(-1)}, []string{"the client certificate expired on 2026-01-02T02:00:00Z"}},
		"not yet valid": {Certificate{Name: "serving", NotBefore: at(1), NotAfter: at(9)}, []string{
			"the serving certificate is not valid before 2026-01-02T04:00:00Z: correct the clock of the node"}},
		"none":          {Certificate{Name: "serving"}, []string{"there is no serving certificate"}},
		"error":         {Certificate{Error: "it cannot be read"}, []string{"it cannot be read"}},
		"first request": {Certificate{Request: &request}, []string{"certificate request csr-1 (s) of 2026-01-02T03:00:00Z waits for approval: kubectl certificate approve csr-1"}},
		"approved":      {Certificate{Request: &approved}, []string{"is approved and not signed yet"}},
		"denied":        {Certificate{NotBefore: at(-10), NotAfter: at(10), Request: &denied}, []string{"certificate request csr-1 (s) was denied: policy: no; the next one is made 10m0s after"}},
		"failed":        {Certificate{Request: &failed}, []string{"a certificate of s cannot be requested: no way"}},
	} {
		got := problems([]Certificate{c.certificate}, now)
		if !slices.EqualFunc(got, c.want, strings.Contains) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Answers about this node's own requests are recorded, and no others. After a denial there is a pause before the next
// request.
func TestRequests(t *testing.T) {
	var r requests
	now := time.Now()
	csr := &certificatesv1.CertificateSigningRequest{}
	csr.Name, csr.Spec.SignerName = "mine", "s"
	r.asked(csr, "", now)
	other := csr.DeepCopy()
	other.Name = "other"
	other.Status.Certificate = []byte("x")
	r.saw(other, now)
	if got := r.open(); got == nil || got.Name != "mine" || got.Approved || r.mayAsk(now) != nil {
		t.Fatalf("%+v", got)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "Policy", Message: "no"}}
	r.saw(csr, now)
	r.saw(csr, now.Add(time.Minute))
	if got := r.open(); got.Denied != "Policy: no" || !got.Since.Equal(now) {
		t.Errorf("%+v", got)
	}
	if r.mayAsk(now.Add(deniedFor-time.Second)) == nil || r.mayAsk(now.Add(deniedFor)) != nil {
		t.Error("a denial does not count for its time")
	}
	r.asked(csr, "", now)
	csr.Status.Conditions[0].Type = certificatesv1.CertificateApproved
	r.saw(csr, now)
	if got := r.open(); !got.Approved || got.Denied != "" {
		t.Errorf("%+v", got)
	}
	csr.Status.Certificate = []byte("x")
	r.saw(csr, now)
	if got := r.open(); got != nil {
		t.Errorf("%+v", got)
	}
}

// The actor requests the certificate, reports the pending request, and continues a predecessor's work.
func TestActor(t *testing.T) {
	api, dir := newAPIServer(t), t.TempDir()
	c := open(t, ClientOptions{Kubeconfig: dir + "/kubeconfig", Bootstrap: api.kubeconfig(t, "bootstrap"), CertDir: dir, Rotate: true})
	s := serving(t, ServingOptions{CertDir: dir})
	state := &State{}
	constructor := New(Options{Client: c, Serving: s, State: state})
	k := supervisortest.New(t, messages.Identity, constructor("identity"))
	k.Clock.SetTime(time.Now()) // certificates are made at the real time
	k.RunWork()
	api.awaitRequest(t, 1)
	eventually(t, "the request is told", func() bool {
		k.Advance(lookEvery)
		k.RunWork()
		return len(state.Problems()) == 1 && strings.Contains(state.Problems()[0], "kubectl certificate approve csr-1")
	})
	successor := constructor("identity")
	k = supervisortest.New(t, messages.Identity, successor)
	k.Clock.SetTime(time.Now())
	k.RunWork()
	api.approve(t, 1)
	eventually(t, "all is well", func() bool {
		k.Advance(lookEvery)
		k.RunWork()
		return len(state.Problems()) == 0
	})
	in := successor.(interface{ Inspect() any }).Inspect().(Inspection)
	if len(in.Certificates) != 2 || in.Certificates[0].Name != "client" || in.Certificates[1].Name != "serving" || in.Certificates[1].NotAfter.IsZero() {
		t.Errorf("%+v", in)
	}
	if len(api.requests) != 1 {
		t.Errorf("%d requests", len(api.requests))
	}
	if got := s.state(errors.New("the disk is full"), time.Now()); got.Error != "the disk is full" {
		t.Errorf("%+v", got)
	}
	k.Send("", "nonsense")
	if len(k.Ignored) != 1 {
		t.Error("an unknown message is taken")
	}
}
