// Package satoken asks the API server for service accounts of pods and for their tokens (TokenRequest), and remembers tokens
// while they are fresh. Tokens are in memory alone, and never in an error.
package satoken

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
)

// As the kubelet has it: a token is renewed when four fifths of its life, or a day, are over, and some seconds sooner, so
// that not all are renewed at once.
const (
	maxAge    = 24 * time.Hour
	maxJitter = 10 * time.Second
	// requestTimeout bounds a request and its repetitions.
	requestTimeout = 10 * time.Second
	// retryAfter is when a renewal that failed is tried again, while the old token is good.
	retryAfter = 10 * time.Second
)

// Source gives tokens. Safe for concurrent use.
type Source struct {
	client kubernetes.Interface
	now    func() time.Time

	mu     sync.Mutex
	tokens map[key]Token
	asking map[*asking]bool // under way

	accounts map[types.NamespacedName]*v1.ServiceAccount // as they were read last
}

type asking struct {
	pod    types.UID
	cancel context.CancelFunc
}

// key is all by which tokens differ.
type key struct {
	pod                          types.UID
	namespace, account, audience string
	uid                          types.UID // of the account, where it has to be that very one
	seconds                      int64
}

// Token is one of them. It is renewed before it expires, both by the node's clock.
type Token struct {
	Text           string
	Renew, Expires time.Time
}

// New makes a source; nothing is sent.
func New(client kubernetes.Interface) *Source {
	return &Source{client: client, now: time.Now, tokens: map[key]Token{}, asking: map[*asking]bool{},
		accounts: map[types.NamespacedName]*v1.ServiceAccount{}}
}

// Token is a token of the pod's service account for this audience, bound to the pod; an empty audience is the API server. It asks
// the API server unless it has a fresh one; where that fails and the old one has not expired, it is
// given again.
func (s *Source) Token(ctx context.Context, pod *v1.Pod, audience string, seconds *int64) (Token, error) {
	k := key{pod: pod.UID, namespace: pod.Namespace, account: pod.Spec.ServiceAccountName, audience: audience}
	if seconds != nil {
		k.seconds = *seconds
	}
	return s.token(ctx, pod, k, seconds)
}

// AccountToken is a token of the pod's service account, which is to have this UID, for an audience, and bound to the pod. It is
// good for as long as the API server chooses.
func (s *Source) AccountToken(ctx context.Context, pod *v1.Pod, account types.UID, audience string) (string, error) {
	t, err := s.token(ctx, pod,
		key{pod: pod.UID, namespace: pod.Namespace, account: pod.Spec.ServiceAccountName, audience: audience, uid: account}, nil)
	return t.Text, err
}

func (s *Source) token(ctx context.Context, pod *v1.Pod, k key, seconds *int64) (Token, error) {
	was := s.known(k)
	if s.now().Before(was.Renew) {
		return was, nil
	}
	fresh, err := s.request(ctx, pod, k, seconds)
	if err != nil {
		if now := s.now(); now.Before(was.Expires) {
			was.Renew = now.Add(retryAfter)
			return was, nil
		}
		return Token{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[k] = fresh
	return fresh, nil
}

// Forget drops the tokens of a pod, and breaks off the requests for more. One that is asked for later is kept, until it expires.
func (s *Source) Forget(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.asking {
		if a.pod == pod {
			a.cancel()
		}
	}
	maps.DeleteFunc(s.tokens, func(k key, _ Token) bool { return k.pod == pod })
}

// known returns the cached token for the key, and drops all expired tokens.
func (s *Source) known(k key) Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	maps.DeleteFunc(s.tokens, func(_ key, t Token) bool { return !now.Before(t.Expires) })
	return s.tokens[k]
}

func (s *Source) request(ctx context.Context, pod *v1.Pod, k key, seconds *int64) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer s.asks(&asking{pod.UID, cancel})()
	ask := &authv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: k.uid}, Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: seconds,
		BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if k.audience != "" {
		ask.Spec.Audiences = []string{k.audience}
	}
	asked := s.now()
	accounts := s.client.CoreV1().ServiceAccounts(k.namespace)
	got, err := apiclient.AwaitGraph(ctx, pod, func(ctx context.Context) (*authv1.TokenRequest, error) {
		return accounts.CreateToken(ctx, k.account, ask, metav1.CreateOptions{})
	})
	switch {
	case err != nil:
		return Token{}, err
	case got.Status.Token == "":
		return Token{}, errors.New("the API server answered without a token")
	}
	life := time.Hour // the API's default
	if n := got.Spec.ExpirationSeconds; n != nil {
		life = time.Duration(*n) * time.Second
	}
	// By our own clock: that of the API server may be another.
	jitter := time.Duration(rand.Int64N(int64(min(maxJitter, life/20)) + 1)) //nolint:gosec // nothing secret hangs on it
	return Token{Text: got.Status.Token, Renew: asked.Add(min(life/5*4, maxAge) - jitter), Expires: asked.Add(life)}, nil
}

// asks registers a request. The caller calls the returned function at the end of the request.
func (s *Source) asks(a *asking) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking[a] = true
	return func() {
		a.cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asking, a)
	}
}

// maxAccounts bounds the number of cached accounts.
const maxAccounts = 1000

// Account returns the service account of a pod from the API server, or the cached account if the API server does not answer.
// A user that also needs a token works until the cached token expires. The account is shared and must not be modified.
func (s *Source) Account(ctx context.Context, pod *v1.Pod) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
	account, err := apiclient.AwaitGraph(ctx, pod, func(ctx context.Context) (*v1.ServiceAccount, error) {
		return s.client.CoreV1().ServiceAccounts(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if len(s.accounts) >= maxAccounts {
			clear(s.accounts)
		}
		s.accounts[key] = account
		return account, nil
	case refused(err):
		delete(s.accounts, key)
	case s.accounts[key] != nil:
		return s.accounts[key], nil
	}
	return nil, err
}

// refused reports whether the API server refuses the account. Other errors, e.g. of a busy server, may be temporary.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
