package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/satoken"
)

// Tokens gives service account tokens; *satoken.Source has it.
type Tokens interface {
	// Token is a token of the pod's service account, bound to the pod, for an audience, where it is empty the API server.
	// Seconds is how long it is to be good for. It is called side by side, and gives up with ctx.
	Token(ctx context.Context, pod *v1.Pod, audience string, seconds *int64) (satoken.Token, error)
	// Forget drops the tokens of a pod, which is at its end, and breaks off the requests for more. It does not wait.
	Forget(pod types.UID)
}

// RenewRetry is when a token is asked for again that could not be had, where an old one is there.
const RenewRetry = 30 * time.Second

// tokenError is of a token that cannot be had now.
type tokenError struct{ error }

// Unwrap gives the cause.
func (e tokenError) Unwrap() error { return e.error }

// mayPass says that content is not known now, and that what was written before may be as good. A volume whose token cannot be had
// is looked at again.
func (p Folder) mayPass(v *v1.Volume, err error) bool {
	if _, token := errors.AsType[tokenError](err); token {
		p.Node.Log.Warn("a volume's token cannot be renewed; the old one stays", "pod", p.Pod.UID, "volume", v.Name, "error", err)
		p.RenewAt(time.Now().Add(RenewRetry))
		return true
	}
	return objectset.IsUnread(err)
}

// tokenFile adds a token. Who else than root may read it is the kubelet's rule: everybody by the volume's mode, unless the pod
// says which user or group it runs as.
func tokenFile(
	ctx context.Context, p Folder, out map[string]file, source *v1.ServiceAccountTokenProjection, mode int32,
) error {
	if p.Node.Tokens == nil || !objectset.OfAPIServer(p.Pod) {
		return Permanent("projected serviceAccountToken needs an API server")
	}
	token, err := p.Node.Tokens.Token(ctx, p.Pod, source.Audience, source.ExpirationSeconds)
	if err != nil {
		return tokenError{fmt.Errorf("a token of the service account %s/%s: %w", p.Pod.Namespace, p.Pod.Spec.ServiceAccountName,
			err)}
	}
	p.RenewAt(token.Renew)
	owner := userOf(p.Pod)
	if owner != nil || FSGroupOf(p.Pod) != nil {
		mode = 0o600
	}
	out[source.Path] = file{data: []byte(token.Text), mode: mode, owner: owner}
	return nil
}

// userOf is the user that all containers of the pod run as, where they say so and agree.
func userOf(pod *v1.Pod) (user *int64) {
	of := func(c *v1.SecurityContext) *int64 {
		if c != nil && c.RunAsUser != nil {
			return c.RunAsUser
		}
		if pod.Spec.SecurityContext != nil {
			return pod.Spec.SecurityContext.RunAsUser
		}
		return nil
	}
	var all []*int64
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, of(c.SecurityContext))
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, of(c.SecurityContext))
	}
	for _, u := range all {
		if u == nil || user != nil && *u != *user {
			return nil
		}
		user = u
	}
	return user
}
