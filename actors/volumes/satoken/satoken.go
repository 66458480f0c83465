// Package satoken requests service accounts of pods and their tokens (TokenRequest) from the API server, and caches tokens
// while they are fresh. Tokens are only in memory, and never in an error.
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
	"github.com/playlet-dev/playlet/actors/internal/suspend"
)

// As in the kubelet, a token is renewed after four fifths of its life, or after a day. A jitter of some seconds makes this
// earlier, so that not all are renewed at once.
const (
	maxAge    = 24 * time.Hour
	maxJitter = 10 * time.Second
	// maxSeconds is the API's limit of a token's life: 2³² s, more than a century.
	maxSeconds = 1 << 32
	// requestTimeout limits a request and its retries.
	requestTimeout = 10 * time.Second
	// retryAfter is the delay before a failed renewal is retried, while the old token is valid.
	retryAfter = 10 * time.Second
)

// Source provides tokens. It is safe for concurrent use.
type Source struct {
	client kubernetes.Interface
	now    func() time.Time
	asleep func() time.Duration // suspend.Total

	mu     sync.Mutex
	slept  time.Duration // the suspensions that the times of tokens take into account
	tokens map[key]Token
	asking map[*tokenRequest]bool // requests in progress

	accounts map[types.NamespacedName]*v1.ServiceAccount // as last read
}

type tokenRequest struct {
	pod    types.UID
	cancel context.CancelFunc
}

// key has everything that distinguishes one token from another.
type key struct {
	pod                          types.UID
	namespace, account, audience string
	uid                          types.UID // of the account, if it must be this very one
	seconds                      int64
}

// Token is a service account token. It is renewed before it expires, both by the node's clock.
type Token struct {
	Text           string
	Renew, Expires time.Time
}

// New returns a source. It sends nothing.
func New(client kubernetes.Interface) *Source {
	return &Source{client: client, now: time.Now, asleep: suspend.Total, tokens: map[key]Token{},
		asking: map[*tokenRequest]bool{}, accounts: map[types.NamespacedName]*v1.ServiceAccount{}}
}

// Token returns a token of the pod's service account for this audience, bound to the pod. An empty audience is the API server.
// Token sends a request unless it has a fresh token. If the request fails, it returns the old token until that expires.
func (s *Source) Token(ctx context.Context, pod *v1.Pod, audience string, seconds *int64) (Token, error) {
	k := key{pod: pod.UID, namespace: pod.Namespace, account: pod.Spec.ServiceAccountName, audience: audience}
	if seconds != nil {
		k.seconds = *seconds
	}
	return s.token(ctx, pod, k, seconds)
}

// AccountToken returns a token of the pod's service account for an audience, bound to the pod. The account must have this UID.
// The API server chooses the lifetime.
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
	before := s.asleep()
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
	s.wake()
	fresh = fresh.earlier(s.slept - before)
	s.tokens[k] = fresh
	return fresh, nil
}

// wake moves the times of all tokens to earlier ones by the latest suspensions. The caller holds mu.
func (s *Source) wake() {
	slept := s.asleep()
	if slept-s.slept < suspend.Short {
		return
	}
	for k, t := range s.tokens {
		s.tokens[k] = t.earlier(slept - s.slept)
	}
	s.slept = slept
}

// earlier returns the token as it is after a suspension, in which the monotonic clock stops and the token ages.
func (t Token) earlier(slept time.Duration) Token {
	if slept >= suspend.Short {
		t.Renew, t.Expires = t.Renew.Add(-slept), t.Expires.Add(-slept)
	}
	return t
}

// Forget drops the tokens of a pod, and cancels pending requests for more. A token requested later is kept until it expires.
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
	s.wake()
	now := s.now()
	maps.DeleteFunc(s.tokens, func(_ key, t Token) bool { return !now.Before(t.Expires) })
	return s.tokens[k]
}

func (s *Source) request(ctx context.Context, pod *v1.Pod, k key, seconds *int64) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer s.asks(&tokenRequest{pod.UID, cancel})()
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
		life = time.Duration(min(max(*n, 0), maxSeconds)) * time.Second
	}
	// By the node's clock: the clock of the API server may differ.
	jitter := time.Duration(rand.Int64N(int64(min(maxJitter, life/20)) + 1)) //nolint:gosec // the jitter is not a secret
	return Token{Text: got.Status.Token, Renew: asked.Add(min(life/5*4, maxAge) - jitter), Expires: asked.Add(life)}, nil
}

// asks registers a request. The caller calls the returned function at the end of the request.
func (s *Source) asks(a *tokenRequest) (ended func()) {
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
	return apiclient.Absent(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
