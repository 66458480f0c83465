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
	// Allowlist are repositories as pods write them, or prefixes that end in "/*".
	Allowlist []string
}

// Allows reports whether a pod may use a present image without a pull of its own. shown are the pod's credentials for it: from
// pull secrets, and from its service account.
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

// Account reports whether the image was pulled for a service account of this name. Allows decides, from the account's current
// credentials, whether it is the same account.
func (r Record) Account(image, namespace, account string) bool {
	good := r.Credentials[repositoryOf(image)].KubernetesServiceAccounts
	return slices.ContainsFunc(good, func(a kubeletconfig.ImagePullServiceAccount) bool {
		return a.Namespace == namespace && a.Name == account
	})
}

// allows reports whether one of the credentials is among the accepted ones.
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

// repositoryOf returns the image's name in the pod or for the runtime, without tag and digest. Records and the allowlist use
// this form, as in the kubelet.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return image
}

// latest is the tag of an image whose name has none.
const latest = ":latest"

// spellings returns the names that pods may have for the runtime's name of an image. The kubelet records pulls by the name in
// the pod, and this agent does not know whether that has the tag.
func spellings(image string) []string {
	if short, is := strings.CutSuffix(image, latest); is && !strings.Contains(image, "@") {
		return []string{image, short}
	}
	return []string{image}
}
