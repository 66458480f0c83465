package access

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/internal/suspend"
)

const (
	// reviewTimeout bounds all reviews of one request, which waits for them before its handler's own deadline begins.
	reviewTimeout = 10 * time.Second
	// sameErrorEvery is the interval for logging a repeated failure to reach the API server.
	sameErrorEvery = time.Minute
)

// retries is the back-off of a review that the API server could not answer.
var retries = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4}

// Options configure access to port 10250.
type Options struct {
	// NodeName is the name of the Node whose sub-resources are requested.
	NodeName string
	// Tokens reviews tokens and Rights rights; nil without an API server. They should share no budget, neither with each other
	// nor with other clients: anyone who can connect triggers requests of Tokens.
	Tokens, Rights kubernetes.Interface
	// Authentication and Authorization have all defaults set.
	Authentication kubeletconfig.KubeletAuthentication
	Authorization  kubeletconfig.KubeletAuthorization
	Log            *slog.Logger
}

// Access authenticates and authorizes requests. Safe for concurrent use.
type Access struct {
	node  string
	log   *slog.Logger
	ca    *dynamiccertificates.DynamicFileCAContent
	stop  context.CancelFunc
	reads sync.WaitGroup

	newWho func() (authenticator.Request, error)
	newMay func() (authorizer.Authorizer, error)
	asleep func() time.Duration // suspend.Total

	mu     sync.Mutex
	who    authenticator.Request // nil if no client can be authenticated
	may    authorizer.Authorizer // nil if no client can be authorized
	slept  time.Duration         // the suspensions before the answers in their caches
	logged string                // the last logged failure to reach the API server
	at     time.Time
}

// New reads the client CA and starts to follow its file. It reads and sends nothing else. An error names the field and the file.
// If the configuration admits no client (see Exposed), all requests are rejected.
func New(o Options) (*Access, error) {
	a := &Access{node: o.NodeName, log: o.Log, asleep: suspend.Total}
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	if err := a.authenticateBy(ctx, o); err != nil {
		cancel()
		return nil, err
	}
	a.authorizeBy(o)
	if err := a.renew(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// renew makes authenticator and authorizer, whose caches are empty. The caller holds the lock, or is alone.
func (a *Access) renew() error {
	slept := a.asleep()
	who, err := a.newWho()
	if err != nil {
		return err
	}
	may, err := a.newMay()
	if err == nil {
		a.who, a.may, a.slept = who, may, slept
	}
	return err
}

// reviewers returns authenticator and authorizer. After a suspension it makes new ones: the durations of the cached reviews stood
// still, and the rights of clients did not.
func (a *Access) reviewers() (authenticator.Request, authorizer.Authorizer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asleep()-a.slept >= suspend.Short {
		if err := a.renew(); err != nil {
			a.log.Warn("reviews from before the machine's suspension remain cached", "error", err)
		}
	}
	return a.who, a.may
}

func (a *Access) authenticateBy(ctx context.Context, o Options) error {
	a.newWho = func() (authenticator.Request, error) { return nil, nil }
	by := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: ptr.Deref(o.Authentication.Anonymous.Enabled, false)},
		CacheTTL:  o.Authentication.Webhook.CacheTTL.Duration, TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff: &retries,
	}
	if file := o.Authentication.X509.ClientCAFile; file != "" {
		_, err := cert.CertsFromFile(file) // first: if the file is unreadable, the library leaves goroutines behind
		if err != nil {
			return fmt.Errorf("authentication.x509.clientCAFile: %s cannot be used: %w", file, err)
		}
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", file)
		if err != nil {
			return fmt.Errorf("authentication.x509.clientCAFile: %s cannot be used: %w", file, err)
		}
		a.ca, by.ClientCertificateCAContentProvider = ca, ca
		a.reads.Go(func() { ca.Run(ctx, 1) })
	}
	if o.Tokens != nil && ptr.Deref(o.Authentication.Webhook.Enabled, false) {
		by.TokenAccessReviewClient = o.Tokens.AuthenticationV1()
	}
	if a.ca == nil && by.TokenAccessReviewClient == nil && !by.Anonymous.Enabled {
		return nil
	}
	a.newWho = func() (authenticator.Request, error) {
		who, _, err := by.New()
		return who, err
	}
	return nil
}

func (a *Access) authorizeBy(o Options) {
	switch {
	case o.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		a.newMay = func() (authorizer.Authorizer, error) { return authorizerfactory.NewAlwaysAllowAuthorizer(), nil }
	case o.Rights == nil:
		a.newMay = func() (authorizer.Authorizer, error) { return nil, nil }
	default:
		a.newMay = authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: o.Rights.AuthorizationV1(),
			AllowCacheTTL:             o.Authorization.Webhook.CacheAuthorizedTTL.Duration,
			DenyCacheTTL:              o.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
			WebhookRetryBackoff:       &retries,
		}.New
	}
}

// Close stops following the client CA's file. Requests are still served with the last content.
func (a *Access) Close() {
	a.stop()
	a.reads.Wait()
}

// ClientCAs returns the current CAs for clients' certificates, or nil.
func (a *Access) ClientCAs() *x509.CertPool {
	if a.ca == nil {
		return nil
	}
	options, ok := a.ca.VerifyOptions()
	if !ok {
		return nil
	}
	return options.Roots
}

// Proven reports whether a request came with a client certificate signed by the client CAs.
func (a *Access) Proven(r *http.Request) bool {
	roots := a.ClientCAs()
	if roots == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// Filter passes authenticated and authorized requests to next, and answers others in the kubelet's words: 401 "Unauthorized", 403
// "Forbidden (user=…)", 500 if the API server cannot review rights and 503 if it cannot review the client. The request's context
// and 10 s bound the reviews.
func (a *Access) Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text, client := a.check(r)
		if code != http.StatusOK {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text) // fails if the client has left
			return
		}
		next.ServeHTTP(w, r.WithContext(shares.WithClient(r.Context(), client)))
	})
}

// check returns 200 with the client's name, or the rejection.
func (a *Access) check(r *http.Request) (code int, text, client string) {
	by, may := a.reviewers()
	if by == nil || may == nil {
		return http.StatusUnauthorized, "Unauthorized", ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	who, ok, err := by.AuthenticateRequest(r.WithContext(ctx))
	if none := unanswered(err); none != nil {
		a.failed(r, "the API server cannot review the token of a client", none)
		return http.StatusServiceUnavailable, "Authentication error: the token cannot be reviewed", ""
	}
	switch {
	case err != nil || !ok:
		a.log.Debug("request refused: not authenticated", "client", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
			"error", err)
		return http.StatusUnauthorized, "Unauthorized", ""
	case !plainPath(r.URL.Path):
		return http.StatusBadRequest, "the path has an element that is empty, \".\" or \"..\"", ""
	}
	code, text = a.authorize(ctx, r, may, needed(a.node, who.User, r.Method, r.URL.Path))
	return code, text, "user " + plain(who.User.GetName())
}

// authorize reviews each right until one is allowed.
func (a *Access) authorize(
	ctx context.Context, r *http.Request, may authorizer.Authorizer, rights []authorizer.Attributes,
) (code int, text string) {
	subresources := make([]string, 0, len(rights))
	user, verb := plain(rights[0].GetUser().GetName()), rights[0].GetVerb()
	for _, right := range rights {
		subresources = append(subresources, right.GetSubresource())
		decision, _, err := may.Authorize(ctx, right)
		if err != nil {
			a.failed(r, "the API server cannot review the rights of a client", err)
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, "+
				"subresource=%s)",
				user, verb, right.GetSubresource())
		}
		if decision == authorizer.DecisionAllow {
			return http.StatusOK, ""
		}
	}
	a.log.Debug("request refused: forbidden", "client", r.RemoteAddr, "user", user, "verb", verb, "subresources", subresources)
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user, verb,
		subresources)
}

// failed logs the reason that the API server could not be reached, once a minute if it is the same.
func (a *Access) failed(r *http.Request, what string, err error) {
	if r.Context().Err() != nil {
		return // the client has left
	}
	why := apiclient.Explain(err, a.node)
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); why != a.logged || now.Sub(a.at) >= sameErrorEvery {
		a.logged, a.at = why, now
		a.log.Warn(what+"; the request is refused", "error", why)
	}
}

// unanswered returns the error that the API server did not answer about a token, or nil if it answered, e.g. rejected a
// certificate or token.
func unanswered(err error) error {
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		for _, e := range all.Errors() {
			if none := unanswered(e); none != nil {
				return none
			}
		}
		return nil
	}
	var status apierrors.APIStatus
	_, request := errors.AsType[*url.Error](err)
	if errors.As(err, &status) || request || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// plain replaces control characters in external names.
func plain(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}
