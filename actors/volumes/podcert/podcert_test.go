package podcert

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	beta "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

const signer = "example.org/pods"

// rig is a source with a signer that the test plays.
type rig struct {
	*Source
	t      *testing.T
	client *fake.Clientset
	now    time.Time
	pod    *v1.Pod
	kind   string // of the key
	made   int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Now(), kind: "ED25519", pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"},
		Spec: v1.PodSpec{ServiceAccountName: "account"}}}
	r.client = fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}})
	r.client.PrependReactor("create", "podcertificaterequests", func(a kubetesting.Action) (bool, runtime.Object, error) {
		r.made++ // the fake makes no names
		a.(kubetesting.CreateAction).GetObject().(*beta.PodCertificateRequest).Name = fmt.Sprint("req-", r.made)
		return false, nil, nil
	})
	r.Source = New(Options{Client: r.client, NodeName: "node", Now: func() time.Time { return r.now },
		Account: func(context.Context, *v1.Pod) (*v1.ServiceAccount, error) {
			return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "account", UID: "account-uid"}}, nil
		}})
	return r
}

func (r *rig) get() (Answer, error) {
	return r.Get(r.t.Context(), r.pod, "v", 0, &v1.PodCertificateProjection{SignerName: signer, KeyType: r.kind,
		MaxExpirationSeconds: new(int32(7200)), UserAnnotations: map[string]string{"example.org/a": "b"}})
}

// pending requires that the source waits for its signer.
func (r *rig) pending(late bool) Answer {
	r.t.Helper()
	a, err := r.get()
	if p, is := errors.AsType[PendingError](err); !is || p.Late != late || messages.CauseOf(err).Code != messages.CauseCertificate {
		r.t.Fatalf("got the error %v, want a pending certificate, late: %t", err, late)
	}
	return a
}

func (r *rig) request() *beta.PodCertificateRequest {
	r.t.Helper()
	got, err := r.client.CertificatesV1beta1().PodCertificateRequests("ns").Get(r.t.Context(), fmt.Sprint("req-", r.made), metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) update(change func(*beta.PodCertificateRequest)) {
	r.t.Helper()
	got := r.request()
	change(got)
	if _, err := r.client.CertificatesV1beta1().PodCertificateRequests("ns").Update(r.t.Context(), got, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// issue signs the request in progress for two hours.
func (r *rig) issue() {
	r.t.Helper()
	r.update(func(q *beta.PodCertificateRequest) { volumestest.Issue(r.t, q, r.now, 2*time.Hour) })
}

func (r *rig) refuse(condition, reason string) {
	r.t.Helper()
	r.update(func(q *beta.PodCertificateRequest) {
		q.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason}}
	})
}

func TestSource_EachKeyType(t *testing.T) {
	for _, kind := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		r := newRig(t)
		r.kind = kind
		r.pending(false)
		s := r.request().Spec
		if s.SignerName != signer || s.PodName != "web" || s.PodUID != "u" || s.ServiceAccountName != "account" ||
			s.ServiceAccountUID != "account-uid" || s.NodeName != "node" || s.NodeUID != "node-uid" || *s.MaxExpirationSeconds != 7200 ||
			!maps.Equal(s.UnverifiedUserAnnotations, map[string]string{"example.org/a": "b"}) {
			t.Errorf("%s: the request is %+v", kind, s)
		}
		r.issue()
		a, err := r.get()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.X509KeyPair(a.Chain, a.Key); err != nil {
			t.Errorf("%s: the certificate does not match the key: %v", kind, err)
		}
		if strings.Contains(string(a.Chain), "comment") {
			t.Errorf("%s: the chain has text besides its certificates: %s", kind, a.Chain)
		}
	}
	r := newRig(t)
	r.kind = "DSA"
	if _, err := r.get(); err == nil || !strings.Contains(err.Error(), `keyType "DSA"`) || r.made > 0 {
		t.Errorf("an unknown key type: got the error %v and %d requests", err, r.made)
	}
}

// A certificate is renewed at its time with another key, and stays until the new one is there. Events and states are the
// kubelet's.
func TestSource_Renews(t *testing.T) {
	r := newRig(t)
	states := func(want string) {
		t.Helper()
		if got := r.states(); len(got) != 1 || got[[2]string{signer, want}] != 1 {
			t.Errorf("got the states %v, want %s", got, want)
		}
	}
	if a := r.pending(false); a.Again != r.now.Add(500*time.Millisecond) {
		t.Errorf("the first read is after %s", a.Again.Sub(r.now))
	}
	states("not_yet_issued")
	r.issue()
	first, err := r.get()
	if err != nil || r.made != 1 {
		t.Fatal(err, r.made)
	}
	states("fresh")
	issuedAt := r.now
	r.now = first.Again.Add(-time.Second)
	if a, err := r.get(); err != nil || r.made != 1 || a.Again != first.Again {
		t.Errorf("before its time: %d requests, error %v", r.made, err)
	}
	old := func(events ...string) {
		t.Helper()
		a, err := r.get()
		if err != nil || string(a.Key) != string(first.Key) || r.made != 2 {
			t.Fatalf("the old certificate is not returned: %v, %d requests", err, r.made)
		}
		var got []string
		for _, e := range a.Events {
			got = append(got, e.Reason)
			if e.Object.UID != "u" || e.Type != v1.EventTypeWarning || !strings.Contains(e.Message, signer) {
				t.Errorf("the event is %+v", e)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(events) {
			t.Errorf("got the events %v, want %v", got, events)
		}
	}
	r.now = first.Again
	old()
	r.now = r.now.Add(11 * time.Minute)
	old("CertificateOverdueForRefresh")
	states("overdue_for_refresh")
	old()
	r.now = issuedAt.Add(2*time.Hour + time.Second)
	old("CertificateExpired")
	states("expired")
	r.issue()
	second, err := r.get()
	if err != nil || string(second.Key) == string(first.Key) || string(second.Chain) == string(first.Chain) {
		t.Errorf("the certificate is not renewed: %v", err)
	}
	states("fresh")
	r.Forget("u")
	if got := r.states(); len(got) != 0 {
		t.Errorf("a forgotten pod has %v", got)
	}
	var none *Source
	none.Forget("u")
}

// A signer's refusal is final, also for a certificate that is to be renewed, which stays.
func TestSource_Refusals(t *testing.T) {
	for condition, state := range map[string]string{"Denied": "denied", "Failed": "failed"} {
		r := newRig(t)
		r.pending(false)
		r.refuse(condition, "UnsupportedKeyType")
		for i := range 2 {
			a, err := r.get()
			if _, is := errors.AsType[RefusedError](err); !is || !strings.Contains(err.Error(), "ns/req-1") || !strings.Contains(err.Error(), "UnsupportedKeyType") ||
				r.made != 1 || !a.Again.IsZero() {
				t.Errorf("%s: got the error %v and %d requests", condition, err, r.made)
			}
			if len(a.Events) != 1-i || i == 0 && a.Events[0].Reason != condition {
				t.Errorf("%s: got the events %v", condition, a.Events)
			}
		}
		if r.states()[[2]string{signer, state}] != 1 {
			t.Errorf("%s: got the states %v", condition, r.states())
		}
	}
	r := newRig(t)
	r.pending(false)
	r.issue()
	first, err := r.get()
	if err != nil {
		t.Fatal(err)
	}
	for r.now = first.Again; r.made < 2; {
		if _, err := r.get(); err != nil {
			t.Fatal(err)
		}
	}
	r.refuse("Denied", "")
	if a, err := r.get(); err != nil || string(a.Key) != string(first.Key) || len(a.Events) != 1 {
		t.Errorf("a denied renewal: got %v and the events %v", err, a.Events)
	}
}

// A request that was deleted is sent again. Without an API server the source has its error, and then goes on.
func TestSource_Faults(t *testing.T) {
	r := newRig(t)
	r.client.PrependReactor("*", "*", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no server") })
	if a, err := r.get(); err == nil || !strings.Contains(err.Error(), "no server") || a.Again != r.now.Add(retryAfter) {
		t.Errorf("without an API server: got %v", err)
	}
	r.client.ReactionChain = r.client.ReactionChain[1:]
	r.pending(false)
	r.now = r.now.Add(2 * time.Minute)
	r.pending(true)
	for range 20 {
		if a := r.pending(true); a.Again.After(r.now.Add(30 * time.Second)) {
			t.Errorf("the next read is after %s", a.Again.Sub(r.now))
		}
	}
	if err := r.client.CertificatesV1beta1().PodCertificateRequests("ns").Delete(t.Context(), "req-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.get(); err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("a deleted request: got %v", err)
	}
	r.pending(false)
	r.update(func(q *beta.PodCertificateRequest) {
		volumestest.Issue(t, q, r.now, time.Hour)
		q.Status.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "X"}))[:3]
	})
	if _, err := r.get(); err == nil || !strings.Contains(err.Error(), "without a certificate") {
		t.Errorf("an empty chain: got %v", err)
	}
	// A certificate that is past its time from the start is not requested in a loop.
	r.update(func(q *beta.PodCertificateRequest) { volumestest.Issue(t, q, r.now.Add(-24*time.Hour), time.Hour) })
	if a, err := r.get(); err != nil || a.Again.Before(r.now.Add(retryAfter)) {
		t.Errorf("an old certificate: got %v, next call after %s", err, a.Again.Sub(r.now))
	}
}

// The pod's end forgets a certificate while its request is in progress.
func TestSource_ForgottenDuringARequest(t *testing.T) {
	r := newRig(t)
	r.client.PrependReactor("create", "podcertificaterequests", func(kubetesting.Action) (bool, runtime.Object, error) {
		r.Forget("u")
		return false, nil, nil
	})
	_, _ = r.get()
	if got := r.states(); len(got) != 0 {
		t.Errorf("the forgotten pod has %v", got)
	}
}
