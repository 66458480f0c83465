package satoken

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

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
		got, renew, err := s.Token(t.Context(), pod(account), audience, seconds)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		return renew
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
	within(get("a", "", &short, "token 1"), retryAfter, retryAfter) // it is good for a while
	get("a", "", &long, "token 2")
	now = now.Add(200 * time.Second)
	get("a", "", &short, "away")
	if n := len(s.tokens); n != 1 {
		t.Errorf("%d tokens are kept", n)
	}
	refused = nil
	get("a", "", &short, "token 7")
	get("other", "", &long, "token 8")
	other := pod("a")
	other.UID = "v"
	if _, _, err := s.Token(t.Context(), other, "", &long); err != nil {
		t.Error(err)
	}
	s.Forget("u")
	if n := len(s.tokens); n != 1 {
		t.Errorf("of a pod that is gone, %d tokens are kept", n-1)
	}
}

// Requests for a pod that is at its end are broken off, those for others are not.
func TestRequestsForAPodThatIsForgottenEnd(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the request is not noticed
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
			_, _, err := s.Token(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: uid},
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
