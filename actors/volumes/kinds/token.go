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
	"github.com/playlet-dev/playlet/actors/volumes/podcert"
	"github.com/playlet-dev/playlet/actors/volumes/satoken"
	"github.com/playlet-dev/playlet/actors/volumes/trust"
)

// Tokens provides service account tokens. *satoken.Source implements it.
type Tokens interface {
	// Token returns a token of the pod's service account, bound to the pod, for an audience; an empty audience is the API
	// server. Seconds is the requested lifetime. Token is called concurrently, and returns when ctx ends.
	Token(ctx context.Context, pod *v1.Pod, audience string, seconds *int64) (satoken.Token, error)
	// Forget drops the tokens of a pod at its end, and cancels pending requests for more. It does not block.
	Forget(pod types.UID)
}

// RenewRetry is the delay before a failed renewal is retried, while the old token or mount is still there.
const RenewRetry = 30 * time.Second

// tokenError reports that a token or certificate is not available now.
type tokenError struct{ error }

// Unwrap returns the cause.
func (e tokenError) Unwrap() error { return e.error }

// mayPass reports whether err means that the content is unknown for now, and earlier content may still be valid. It schedules a
// retry for a volume whose token is not available.
func (p Folder) mayPass(v *v1.Volume, err error) bool {
	if _, token := errors.AsType[tokenError](err); token {
		if IsNormalWait(err) { // it has the time of its retry
			return true
		}
		p.Node.Log.Warn("a volume's token or certificate cannot be renewed; the old one stays", "pod", p.Pod.UID,
			"volume", v.Name, "error", err)
		if !IsPermanent(err) {
			p.RenewAt(time.Now().Add(RenewRetry))
		}
		return true
	}
	if errors.Is(err, objectset.ErrUncertain) {
		p.Node.Log.Warn("a volume keeps the files that were written earlier", "pod", p.Pod.UID, "volume", v.Name, "error", err)
	}
	if errors.Is(err, trust.ErrUnread) { // the volume may have a token, too
		p.Node.Log.Warn("a volume keeps its trust bundles", "pod", p.Pod.UID, "volume", v.Name, "error", err)
		p.RenewAt(time.Now().Add(RenewRetry))
		return true
	}
	return objectset.IsUnread(err)
}

// tokenFile adds a token. The kubelet's rule decides which users other than root may read it: all that the volume's mode
// admits, unless the pod sets the user or group that it runs as.
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
	out[source.Path] = p.ownFile([]byte(token.Text), mode)
	return nil
}

// bundleFile adds the certificates of ClusterTrustBundles, with the mode and owner of a token.
func bundleFile(p Folder, out map[string]file, source *v1.ClusterTrustBundleProjection, mode int32) error {
	if p.Node.Bundles == nil || !objectset.OfAPIServer(p.Pod) {
		return Permanent("projected clusterTrustBundle needs an API server and the feature gates ClusterTrustBundle and " +
			"ClusterTrustBundleProjection")
	}
	data, err := p.Node.Bundles.Anchors(source)
	if err != nil {
		return err
	}
	out[source.Path] = p.ownFile(data, mode)
	return nil
}

// certificateFiles adds the key and certificate of a source of the volume, with the mode and owner of a token. While the signer
// has not answered, the volume waits.
func certificateFiles(ctx context.Context, p Folder, out map[string]file, volume string, index int,
	source *v1.PodCertificateProjection, mode int32,
) error {
	if p.Node.Certificates == nil || !objectset.OfAPIServer(p.Pod) {
		return Permanent("projected podCertificate needs an API server and the feature gate PodCertificateRequest")
	}
	got, err := p.Node.Certificates.Get(ctx, p.Pod, volume, index, source)
	p.Record(got.Events...)
	if !got.Again.IsZero() {
		p.RenewAt(got.Again)
	}
	if err == nil && got.Trouble != nil {
		p.Node.Log.Warn("the certificate of a pod could not be renewed; the old one stays", "pod", p.Pod.UID, "volume", volume,
			"error", got.Trouble)
	}
	pending, waits := errors.AsType[podcert.PendingError](err)
	_, refused := errors.AsType[podcert.RefusedError](err)
	switch {
	case waits: // it is read again at the time above
		return tokenError{WaitError{Err: err, Over: func() bool { return false }, Normal: !pending.Late}}
	case refused:
		return tokenError{permanentError{err}}
	case err != nil:
		return tokenError{err}
	}
	for path, data := range map[string][]byte{
		source.CredentialBundlePath: slices.Concat(got.Key, got.Chain), source.KeyPath: got.Key,
		source.CertificateChainPath: got.Chain,
	} {
		if path != "" {
			out[path] = p.ownFile(data, mode)
		}
	}
	return nil
}

// ownFile returns a file for the user of the pod, if it has one.
func (p Folder) ownFile(data []byte, mode int32) file {
	owner := userOf(p.Pod)
	if owner != nil || FSGroupOf(p.Pod) != nil {
		mode = 0o600
	}
	return file{data: data, mode: mode, owner: owner}
}

// userOf returns the user that all containers of the pod run as; nil: some set no user, or the users differ.
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
