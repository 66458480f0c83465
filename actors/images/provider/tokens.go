package provider

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
)

// TokensGate is the feature gate of tokenAttributes, KEP-4412.
const TokensGate = "KubeletServiceAccountTokenForCredentialProviders"

// Accounts returns the service accounts of pods. Its methods are called concurrently and return when ctx ends.
type Accounts interface {
	// Account returns the service account of a pod. The object is shared and must not be modified.
	Account(ctx context.Context, pod *v1.Pod) (*v1.ServiceAccount, error)
	// AccountToken returns a token of the pod's service account for an audience, bound to the pod. account is its UID.
	AccountToken(ctx context.Context, pod *v1.Pod, account types.UID, audience string) (string, error)
}

// tokens configures the data of service accounts that a plugin gets.
type tokens struct {
	audience    string
	required    bool     // it is not asked for pods without a service account
	annotations []string // required annotations
	optional    []string // annotations that it gets if they exist
	eachToken   bool     // its answers are cached by token, not by account
}

func tokensOf(c *kubeletconfig.ServiceAccountTokenAttributes) *tokens {
	if c == nil {
		return nil
	}
	return &tokens{
		audience: c.ServiceAccountTokenAudience, required: *c.RequireServiceAccount,
		annotations: c.RequiredServiceAccountAnnotationKeys, optional: c.OptionalServiceAccountAnnotationKeys,
		eachToken: c.CacheType == kubeletconfig.TokenServiceAccountTokenCacheType,
	}
}

// validTokens checks tokenAttributes by the kubelet's rules. The error begins with the field.
func validTokens(c *kubeletconfig.ServiceAccountTokenAttributes) error {
	if c == nil {
		return nil
	}
	required, optional := c.RequiredServiceAccountAnnotationKeys, c.OptionalServiceAccountAnnotationKeys
	kinds := []kubeletconfig.ServiceAccountTokenCacheType{
		kubeletconfig.ServiceAccountServiceAccountTokenCacheType, kubeletconfig.TokenServiceAccountTokenCacheType,
	}
	switch {
	case c.ServiceAccountTokenAudience == "":
		return errors.New(".serviceAccountTokenAudience must be set: it is the audience of the tokens")
	case c.RequireServiceAccount == nil:
		return errors.New(".requireServiceAccount must be set: true asks the plugin for no pod without a service account, " +
			"false asks it without a token then")
	case !*c.RequireServiceAccount && len(required) > 0:
		return errors.New(".requiredServiceAccountAnnotationKeys needs requireServiceAccount to be true")
	case !slices.Contains(kinds, c.CacheType):
		return fmt.Errorf(".cacheType is %q; %s, or %s where an answer is good for as long as its token alone, is needed",
			c.CacheType, kinds[0], kinds[1])
	}
	if err := validKeys(required); err != nil {
		return fmt.Errorf(".requiredServiceAccountAnnotationKeys%w", err)
	}
	if err := validKeys(optional); err != nil {
		return fmt.Errorf(".optionalServiceAccountAnnotationKeys%w", err)
	}
	for i, key := range optional {
		if slices.Contains(required, key) {
			return fmt.Errorf(".optionalServiceAccountAnnotationKeys[%d]: %q is among the required ones, too", i, key)
		}
	}
	return nil
}

func validKeys(keys []string) error {
	for i, key := range keys {
		if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
			return fmt.Errorf("[%d]: %q is no key of an annotation: %s", i, key, strings.Join(problems, "; "))
		}
		if slices.Contains(keys[:i], key) {
			return fmt.Errorf("[%d]: %q is there twice", i, key)
		}
	}
	return nil
}

// holder is the service account that a plugin is asked for; the zero holder is the node. It contains a token: do not log it.
type holder struct {
	account     pullauth.Account
	annotations map[string]string
	token       string
	key         string // part of the cache key; empty without a token
}

// skipReason is the reason why a plugin is not asked for a pod.
type skipReason string

func (e skipReason) Error() string { return string(e) }

// holder reads the service account and gets its token.
func (t *tokens) holder(ctx context.Context, q Question) (holder, error) {
	switch {
	case t == nil:
		return holder{}, nil
	case q.Pod == nil && t.required:
		return holder{}, skipReason("it is for pods with a service account of the API server alone")
	case q.Pod == nil:
		return holder{}, nil
	}
	namespace, name := q.Pod.Namespace, q.Pod.Spec.ServiceAccountName
	account, err := q.Accounts.Account(ctx, q.Pod)
	if err != nil {
		return holder{}, fmt.Errorf("could not read the service account %s/%s: %w", namespace, name, err)
	}
	h := holder{account: pullauth.Account{UID: string(account.UID), Namespace: namespace, Name: name}}
	h.annotations = map[string]string{}
	for _, key := range slices.Concat(t.annotations, t.optional) {
		value, has := account.Annotations[key]
		if has {
			h.annotations[key] = value
		} else if slices.Contains(t.annotations, key) {
			return holder{}, skipReason(fmt.Sprintf("the service account %s/%s has no annotation %s", namespace, name, key))
		}
	}
	if h.token, err = q.Accounts.AccountToken(ctx, q.Pod, account.UID, t.audience); err != nil {
		return holder{}, fmt.Errorf("could not get a token of the service account %s/%s for the audience %q: %w", namespace, name,
			t.audience, err)
	}
	// Like the kubelet, the key contains the account, the annotations that the plugin gets and, if answers are cached by token,
	// the token.
	parts := []string{h.account.Namespace, h.account.Name, h.account.UID}
	for _, key := range slices.Sorted(maps.Keys(h.annotations)) {
		parts = append(parts, key, h.annotations[key])
	}
	if t.eachToken {
		parts = append(parts, fmt.Sprintf("%x", sha256.Sum256([]byte(h.token))))
	}
	h.key = fmt.Sprintf("%q", parts)
	return h, nil
}
