package satoken

import (
	"errors"
	"fmt"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
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
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}, Spec: v1.PodSpec{ServiceAccountName: account}}
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
	if r := asked[2]; len(asked) != 4 || r.Audiences[0] != "vault" || *r.ExpirationSeconds != 1000 || r.BoundObjectRef.Kind != "Pod" || r.BoundObjectRef.UID != "u" || asked[0].Audiences != nil {
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
