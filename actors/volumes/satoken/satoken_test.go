package satoken

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/internal/suspend"
)

// A token with an absurd life is used, and renewed when it is due; nothing overflows.
func TestToken_OfAnAbsurdLife(t *testing.T) {
	var life int64
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		req := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
		req.Spec.ExpirationSeconds, req.Status.Token = &life, "token"
		return true, req, nil
	})
	for _, life = range []int64{-1, math.MinInt64, 0, 1, math.MaxInt64, math.MaxInt64 / int64(time.Second) * 3} {
		s := New(client)
		now := time.Now()
		s.now = func() time.Time { return now }
		got, err := s.Token(t.Context(), &v1.Pod{}, "", nil)
		if err != nil || got.Text != "token" || got.Renew.After(now.Add(maxAge)) || got.Expires.Before(now) || got.Renew.Before(now.Add(-maxJitter)) {
			t.Errorf("%d s: %+v, %v", life, got, err)
		}
		if life > 1e6 && got.Expires.Before(now.Add(maxAge)) {
			t.Errorf("%d s: it expires at %s", life, got.Expires)
		}
	}
}

func TestTokensAreRememberedWhileTheyAreFresh(t *testing.T) {
	var asked []authv1.TokenRequestSpec
	var refused error
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		req := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
		asked = append(asked, req.Spec)
		req.Status.Token = fmt.Sprint("token ", len(asked))
		return true, req, refused
	})
	s := New(client)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.now = func() time.Time { return now }
	pod := func(account string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"},
			Spec: v1.PodSpec{ServiceAccountName: account}}
	}
	long, short := int64(48*3600), int64(1000)
	get := func(account, audience string, seconds *int64, want string) time.Time {
		t.Helper()
		got, err := s.Token(t.Context(), pod(account), audience, seconds)
		if err != nil {
			got.Text = err.Error()
		} else if !got.Expires.After(now) || got.Expires.After(now.Add(time.Duration(*seconds)*time.Second)) {
			t.Errorf("%s expires at %s", got.Text, got.Expires)
		}
		if got.Text != want {
			t.Errorf("got %q, want %q", got.Text, want)
		}
		return got.Renew
	}
	within := func(renew time.Time, from, to time.Duration) {
		t.Helper()
		if d := renew.Sub(now); d < from || d > to {
			t.Errorf("it is renewed in %s", d)
		}
	}
	within(get("a", "", &short, "token 1"), 790*time.Second, 800*time.Second)
	within(get("a", "", &long, "token 2"), 24*time.Hour-maxJitter, 24*time.Hour)
	get("a", "", &short, "token 1")
	get("a", "vault", &short, "token 3")
	get("b", "", &short, "token 4")
	if r := asked[2]; len(asked) != 4 || r.Audiences[0] != "vault" || *r.ExpirationSeconds != 1000 ||
		r.BoundObjectRef.Kind != "Pod" || r.BoundObjectRef.UID != "u" || asked[0].Audiences != nil {
		t.Errorf("asked %+v", asked)
	}
	now = now.Add(800 * time.Second)
	refused = errors.New("away")
	within(get("a", "", &short, "token 1"), retryAfter, retryAfter) // the token is still valid
	get("a", "", &long, "token 2")
	now = now.Add(200 * time.Second)
	get("a", "", &short, "away")
	if n := len(s.tokens); n != 1 {
		t.Errorf("%d tokens are kept", n)
	}
	refused = nil
	get("a", "", &short, "token 7")
	// While the machine is suspended, the monotonic clock stops and the tokens age.
	asleep := time.Duration(0)
	s.asleep = func() time.Duration { return asleep }
	asleep = 700 * time.Second
	get("a", "", &short, "token 7")
	asleep = 850 * time.Second
	get("a", "", &short, "token 8")
	get("a", "", &short, "token 8")
	// After the clock was set back, a token is not valid yet, however young it is.
	asleep += suspend.SetBack
	get("a", "", &short, "token 9")
	asleep, asked = 0, asked[:7]
	s.slept = 0
	delete(s.tokens, key{pod: "u", namespace: "ns", account: "a", seconds: short})
	get("other", "", &long, "token 8")
	other := pod("a")
	other.UID = "v"
	if _, err := s.Token(t.Context(), other, "", &long); err != nil {
		t.Error(err)
	}
	s.Forget("u")
	if n := len(s.tokens); n != 1 {
		t.Errorf("of a pod that is gone, %d tokens are kept", n-1)
	}
}

// Requests for a pod at its end are canceled. Requests for other pods are not.
func TestRequestsForAPodThatIsForgottenEnd(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the request is not noticed
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s, ended := New(client), make(chan types.UID, 2)
	for _, uid := range []types.UID{"u", "v"} {
		go func() {
			_, err := s.Token(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: uid},
				Spec: v1.PodSpec{ServiceAccountName: "a"}}, "", nil)
			if uid == "u" && !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
			ended <- uid
		}()
		<-asked
	}
	s.Forget("u")
	if uid := <-ended; uid != "u" {
		t.Errorf("the request of %s ended", uid)
	}
	if len(s.asking) != 1 {
		t.Errorf("%d requests are under way", len(s.asking))
	}
	close(answer)
	<-ended
}

// A service account is read each time, because its annotations may have changed. If the read fails, the last account is
// returned.
func TestAnAccountIsAsItWasReadLast(t *testing.T) {
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
	client := fake.NewClientset(account)
	var fault error
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fault != nil, nil, fault
	})
	s := New(client)
	get := func(want string) {
		t.Helper()
		got, err := s.Account(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{ServiceAccountName: "a"}})
		said := ""
		if err == nil {
			said = string(got.UID) + got.Annotations["x"]
		}
		if said != want {
			t.Errorf("it is %q, %v; want %q", said, err, want)
		}
	}
	get("1")
	changed := account.DeepCopy()
	changed.Annotations = map[string]string{"x": "y"}
	_, err := client.CoreV1().ServiceAccounts("ns").Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	get("1y")
	fault = errors.New("connection refused")
	get("1y")
	fault = apierrors.NewForbidden(v1.Resource("serviceaccounts"), "a", errors.New("no"))
	get("")
	fault = errors.New("connection refused")
	get("") // a refused read does not return the cached account
}

// The token for a pull is for the account that was read, not for another account of the same name.
func TestATokenIsOfThisAccount(t *testing.T) {
	var asked []authv1.TokenRequest
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		req := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
		asked = append(asked, *req)
		req.Status.Token = fmt.Sprint("token ", len(asked))
		return true, req, nil
	})
	s := New(client)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}, Spec: v1.PodSpec{ServiceAccountName: "a"}}
	for _, c := range []struct {
		uid  types.UID
		want string
	}{{"1", "token 1"}, {"1", "token 1"}, {"2", "token 2"}} {
		if got, err := s.AccountToken(t.Context(), pod, c.uid, "registry"); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.uid, got, err)
		}
	}
	if len(asked) != 2 || asked[0].UID != "1" || asked[1].UID != "2" || asked[0].Spec.Audiences[0] != "registry" ||
		asked[0].Spec.ExpirationSeconds != nil || asked[0].Spec.BoundObjectRef.UID != "u" {
		t.Errorf("asked %+v", asked)
	}
	s.Forget("u")
	if len(s.tokens) != 0 {
		t.Error("tokens of a pod that is over are kept")
	}
}

// A pod that the API server does not have yet is no failure: the token is requested again soon.
func TestToken_OfUnknownPod(t *testing.T) {
	accounts, pods := schema.GroupResource{Resource: "serviceaccounts"}, schema.GroupResource{Resource: "pods"}
	refusals := []error{
		apierrors.NewForbidden(accounts, "web", errors.New("no relationship found between node 'n' and this object")),
		apierrors.NewNotFound(pods, "web"),
		apierrors.NewForbidden(accounts, "web", errors.New("node requested token bound to a pod scheduled on a different node")),
	}
	client, requests := fake.NewClientset(), 0
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if requests++; requests <= len(refusals) {
			return true, nil, refusals[requests-1]
		}
		got := a.(clienttesting.CreateAction).GetObject().(*authv1.TokenRequest).DeepCopy()
		got.Status.Token = "token"
		return true, got, nil
	})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u", CreationTimestamp: metav1.Now()}}
	if got, err := New(client).Token(t.Context(), pod, "", nil); err != nil || got.Text != "token" || requests != len(refusals)+1 {
		t.Errorf("got %q, %v after %d requests", got.Text, err, requests)
	}
}
