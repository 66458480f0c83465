package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/suspend"
)

const (
	maxAnswer = 1 << 20 // bytes, as of a Secret
	maxCached = 1000    // answers of one plugin
)

// Providers are the plugins of this node. They are safe for concurrent use. The nil Providers have no credentials.
type Providers struct {
	plugins       []*plugin
	mayHaveTokens bool
	log           *slog.Logger
}

// Question is a request for credentials.
type Question struct {
	// Repository includes its registry, but neither tag nor digest.
	Repository string
	// Pod is the pod of the service account for plugins that require one; nil for no account.
	Pod *v1.Pod
	// Accounts has the service account of Pod.
	Accounts Accounts
}

type plugin struct {
	name, program string
	version       string // of requests and answers
	args, env     []string
	match         pullauth.Patterns
	cacheFor      time.Duration
	timeout       time.Duration
	log           *slog.Logger
	tokens        *tokens // nil: it gets no tokens

	asleep func() time.Duration // suspend.Total

	mu    sync.Mutex
	slept time.Duration // the suspensions before the answers in the cache
	cache map[string]cacheEntry
	busy  map[string]chan struct{} // runs in progress, by repository and holder; closed at the end
}

type cacheEntry struct {
	ring  *pullauth.Keyring
	until time.Time
}

// ByAccount reports whether a plugin requires the service account for a repository.
func (p *Providers) ByAccount(repository string) bool {
	return p != nil && slices.ContainsFunc(p.plugins, func(one *plugin) bool {
		return one.tokens != nil && one.match.Match(repository)
	})
}

// Credentials returns the plugins' credentials for a repository, in the order of the plugins. problems name the plugins that
// failed; a failure does not affect the others. It runs programs, each for at most a minute.
func (p *Providers) Credentials(ctx context.Context, q Question) (found []*pullauth.Credential, problems []error) {
	if p == nil {
		return nil, nil
	}
	for _, one := range p.plugins {
		if !one.match.Match(q.Repository) {
			continue
		}
		ring, err := one.ask(ctx, q)
		if err != nil {
			what := "credential provider %s: %w"
			if _, is := errors.AsType[skipReason](err); is {
				what = "credential provider %s is not asked: %w"
			}
			problems = append(problems, fmt.Errorf(what, one.name, err))
			continue
		}
		found = append(found, ring.Lookup(q.Repository)...)
	}
	return found, problems
}

// ask returns the cached answer, or runs the plugin. It never runs twice at once for the same repository and holder.
func (p *plugin) ask(ctx context.Context, q Question) (*pullauth.Keyring, error) {
	h, err := p.tokens.holder(ctx, q)
	if err != nil {
		return nil, err
	}
	running := q.Repository + " " + h.key
	for {
		p.mu.Lock()
		if ring := p.cached(q.Repository, h); ring != nil {
			p.mu.Unlock()
			return ring, nil
		}
		busy := p.busy[running]
		if busy == nil {
			break
		}
		p.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done := make(chan struct{})
	p.busy[running] = done
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, running)
		close(done)
	}()
	began, slept := time.Now(), p.asleep()
	answer, err := p.run(ctx, q.Repository, h)
	metrics.Since(metrics.ProviderTime, began, p.name)
	if err != nil {
		metrics.ProviderErrors.WithLabelValues(p.name).Inc()
		return nil, err
	}
	from := "credential provider " + p.name
	if h.token != "" {
		from += fmt.Sprintf(" for the service account %s/%s", h.account.Namespace, h.account.Name)
	}
	auths := map[string]pullauth.BasicAuth{}
	for key, a := range answer.Auth {
		if h.token != "" && a.Password == h.token && !p.tokens.eachToken {
			return nil, fmt.Errorf("it answers with the token itself, which needs tokenAttributes.cacheType to be %s",
				kubeletconfig.TokenServiceAccountTokenCacheType)
		}
		auths[key] = pullauth.BasicAuth{Username: a.Username, Password: a.Password}
	}
	ring := pullauth.Of(from, h.account, auths)
	return ring, p.keep(q.Repository, h, answer, ring, slept)
}

// wake drops the cached answers if the machine was suspended since: the durations stood still, and the credentials did not. The
// caller holds the lock.
func (p *plugin) wake() {
	if slept := p.asleep(); slept-p.slept >= suspend.Short {
		clear(p.cache)
		p.slept = slept
	}
}

// cached returns the most specific cached answer; the caller holds the lock.
func (p *plugin) cached(repository string, h holder) *pullauth.Keyring {
	p.wake()
	for _, kind := range []credentialprovider.PluginCacheKeyType{
		credentialprovider.ImagePluginCacheKeyType, credentialprovider.RegistryPluginCacheKeyType,
		credentialprovider.GlobalPluginCacheKeyType,
	} {
		key, _ := cacheKey(kind, repository, h)
		if c, ok := p.cache[key]; ok && time.Now().Before(c.until) {
			return c.ring
		}
	}
	return nil
}

// cacheKey returns the cache key for the scope of an answer.
func cacheKey(kind credentialprovider.PluginCacheKeyType, repository string, h holder) (string, error) {
	switch kind {
	case credentialprovider.ImagePluginCacheKeyType:
		return "image " + repository + " " + h.key, nil
	case credentialprovider.RegistryPluginCacheKeyType:
		registry, _, _ := strings.Cut(repository, "/")
		return "registry " + registry + " " + h.key, nil
	case credentialprovider.GlobalPluginCacheKeyType:
		return "global " + h.key, nil
	}
	return "", fmt.Errorf("its cacheKeyType is %q; Image, Registry or Global is needed", kind)
}

// keep caches an answer for its own duration, or the default one, unless the machine was suspended while the plugin ran. slept is
// the suspensions before.
func (p *plugin) keep(
	repository string, h holder, answer *credentialprovider.CredentialProviderResponse, ring *pullauth.Keyring,
	slept time.Duration,
) error {
	key, err := cacheKey(answer.CacheKeyType, repository, h)
	if err != nil {
		return err
	}
	keep := p.cacheFor
	if answer.CacheDuration != nil {
		keep = answer.CacheDuration.Duration
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake(); keep <= 0 || p.slept-slept >= suspend.Short {
		return nil
	}
	now := time.Now()
	maps.DeleteFunc(p.cache, func(_ string, c cacheEntry) bool { return !now.Before(c.until) })
	if len(p.cache) >= maxCached {
		clear(p.cache)
	}
	p.cache[key] = cacheEntry{ring, now.Add(keep)}
	return nil
}

// run runs the plugin once. The plugin's output appears in no error and no log, since it may contain credentials.
func (p *plugin) run(ctx context.Context, repository string, h holder) (*credentialprovider.CredentialProviderResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	request, err := json.Marshal(credentialprovider.CredentialProviderRequest{Image: repository,
		TypeMeta:            metav1.TypeMeta{APIVersion: p.version, Kind: "CredentialProviderRequest"},
		ServiceAccountToken: h.token, ServiceAccountAnnotations: h.annotations})
	if err != nil {
		return nil, err
	}
	out := &boundedWriter{limit: maxAnswer}
	cmd := exec.CommandContext(ctx, p.program, p.args...) // the node's configuration names it
	cmd.Env, cmd.Stdin, cmd.Stdout = p.env, bytes.NewReader(request), out
	// Kill the plugin's process group, so that its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %v", p.timeout)
		}
		p.log.Warn("a credential provider failed", "provider", p.name, "image", repository, "error", err)
		return nil, err
	}
	var answer credentialprovider.CredentialProviderResponse
	switch {
	case out.over:
		return nil, fmt.Errorf("its answer is larger than %d bytes", maxAnswer)
	case json.Unmarshal(out.kept.Bytes(), &answer) != nil: // the decoder's error would quote the answer
		return nil, errors.New("its answer is not JSON of the form that is asked for")
	case answer.Kind != "CredentialProviderResponse" || answer.APIVersion != p.version:
		return nil, fmt.Errorf("its answer is no CredentialProviderResponse of %s", p.version)
	}
	return &answer, nil
}

// boundedWriter is a writer that keeps the first bytes and discards the rest.
type boundedWriter struct {
	kept  bytes.Buffer // not embedded: its ReadFrom would ignore the limit
	limit int
	over  bool
}

func (b *boundedWriter) Write(data []byte) (int, error) {
	keep := data[:min(len(data), b.limit-b.kept.Len())]
	b.over = b.over || len(keep) < len(data)
	b.kept.Write(keep)
	return len(data), nil
}
