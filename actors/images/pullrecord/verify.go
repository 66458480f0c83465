package pullrecord

import (
	"slices"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
)

// Policy is imagePullCredentialsVerificationPolicy with preloadedImagesVerificationAllowlist. The zero Policy verifies nothing.
type Policy struct {
	Kind kubeletconfig.ImagePullCredentialsVerificationPolicy
	// Allowlist are repositories as pods write them, or their beginnings where they end in "/*".
	Allowlist []string
}

// Allows says whether a pod may use an image that is here without showing a registry what it has. shown are the credentials that
// there are for it of the pod's own: of its pull secrets, and of its service account.
func (p Policy) Allows(image string, r Record, shown []*pullauth.Credential) bool {
	result, allowed := "mustAuthenticate", false
	switch {
	case !p.verifies(repositoryOf(image), r.Ours):
		result, allowed = "credentialPolicyAllowed", true
	case allows(r.Credentials[repositoryOf(image)], shown):
		result, allowed = "credentialRecordFound", true
	case r.Problem != nil:
		result = "error"
	}
	metrics.PullChecks.WithLabelValues(result).Inc()
	return allowed
}

// Account says that a service account of this name brought the image: whether that is this very account, and is given credentials
// for it today, decides.
func (r Record) Account(image, namespace, account string) bool {
	good := r.Credentials[repositoryOf(image)].KubernetesServiceAccounts
	return slices.ContainsFunc(good, func(a kubeletconfig.ImagePullServiceAccount) bool {
		return a.Namespace == namespace && a.Name == account
	})
}

// allows says that one of the credentials is one of those that were good.
func allows(good kubeletconfig.ImagePullCredentials, shown []*pullauth.Credential) bool {
	return good.NodePodsAccessible || slices.ContainsFunc(shown, func(c *pullauth.Credential) bool {
		if !c.Secret() {
			return !c.Node() && slices.Contains(good.KubernetesServiceAccounts, accountOf(c.Account))
		}
		secret := secretOf(c)
		return slices.ContainsFunc(good.KubernetesSecrets, func(s kubeletconfig.ImagePullSecret) bool {
			return s.CredentialHash == secret.CredentialHash || sameObject(s, secret)
		})
	})
}

func (p Policy) verifies(repository string, ours bool) bool {
	switch p.Kind {
	case kubeletconfig.NeverVerifyPreloadedImages:
		return ours
	case kubeletconfig.NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(p.Allowlist, func(entry string) bool {
			begin, all := strings.CutSuffix(entry, "*")
			return repository == entry || all && strings.HasPrefix(repository, begin)
		})
	case kubeletconfig.AlwaysVerify:
		return true
	case kubeletconfig.NeverVerify:
	}
	return false
}

// repositoryOf is the repository of an image as a pod names it, or as the runtime is given it, without tag and digest.
// Records and the allowlist go by this, as the kubelet's do.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return image
}

// latest is the tag of an image whose name has none.
const latest = ":latest"

// spellings are the names that pods may have for an image that the runtime is given by this one: the kubelet notes pulls by the
// pod's, and this agent cannot tell whether its author wrote the tag.
func spellings(image string) []string {
	if short, is := strings.CutSuffix(image, latest); is && !strings.Contains(image, "@") {
		return []string{image, short}
	}
	return []string{image}
}
