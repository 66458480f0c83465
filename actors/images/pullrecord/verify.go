package pullrecord

import (
	"slices"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
)

// Policy is imagePullCredentialsVerificationPolicy with preloadedImagesVerificationAllowlist. The zero Policy verifies nothing.
type Policy struct {
	Kind kubeletconfig.ImagePullCredentialsVerificationPolicy
	// Allowlist are repositories, or their beginnings where they end in "/*".
	Allowlist []string
}

// Allows says whether a pod may use an image that is here without showing a registry what it has. repository is the image's as
// the pod names it, with its registry; shown are the credentials that the pod's pull secrets have for it.
func (p Policy) Allows(repository string, r Record, shown []*pullauth.Credential) bool {
	if !p.verifies(repository, r.Ours) {
		return true
	}
	good := r.Credentials[repository]
	return good.NodePodsAccessible || slices.ContainsFunc(shown, func(c *pullauth.Credential) bool {
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
