package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	minTokenLifetime       = 10 * 60
	maxTokenLifetime       = 1 << 32
	minCertificateLifetime = 60 * 60
	maxCertificateLifetime = 91 * 24 * 60 * 60
)

func (v *validator) projected(projected *v1.ProjectedVolumeSource, at *field.Path) {
	v.fileMode(at.Child("defaultMode"), projected.DefaultMode)
	written := map[string]bool{}
	for i := range projected.Sources {
		source, here := &projected.Sources[i], at.Child("sources").Index(i)
		given := 0
		if source.Secret != nil {
			given++
			v.needs(here.Child("secret"), "name", source.Secret.Name)
			v.items(source.Secret.Items, here.Child("secret", "items"), written)
		}
		if source.ConfigMap != nil {
			given++
			v.needs(here.Child("configMap"), "name", source.ConfigMap.Name)
			v.items(source.ConfigMap.Items, here.Child("configMap", "items"), written)
		}
		if source.DownwardAPI != nil {
			given++
			v.downwardFiles(source.DownwardAPI.Items, here.Child("downwardAPI", "items"), written)
		}
		if source.ServiceAccountToken != nil {
			given++
			v.token(source.ServiceAccountToken, here.Child("serviceAccountToken"))
		}
		if source.ClusterTrustBundle != nil {
			given++
			v.trustBundle(source.ClusterTrustBundle, here.Child("clusterTrustBundle"), written)
		}
		if source.PodCertificate != nil {
			given++
			v.certificate(source.PodCertificate, here.Child("podCertificate"), written)
		}
		if given > 1 {
			v.forbidden(here, fmt.Sprintf("may be one kind of source only, has %d", given))
		}
	}
}

func (v *validator) token(token *v1.ServiceAccountTokenProjection, at *field.Path) {
	v.between(at.Child("expirationSeconds"), deref(token.ExpirationSeconds), minTokenLifetime, maxTokenLifetime)
	v.fileInside(at.Child("path"), token.Path)
	if v.spec.ServiceAccountName == "" {
		v.forbidden(at, "needs spec.serviceAccountName")
	}
}

// trustBundle checks KEP-3257: a bundle is found by its name, or all of a signer are.
func (v *validator) trustBundle(bundle *v1.ClusterTrustBundleProjection, at *field.Path, written map[string]bool) {
	switch {
	case bundle.Name != nil && bundle.SignerName != nil:
		v.invalid(at.Child("signerName"), *bundle.SignerName, "may not be set beside name")
	case bundle.Name != nil:
		v.needs(at, "name", *bundle.Name)
		if bundle.LabelSelector != nil {
			v.forbidden(at.Child("labelSelector"), "may not be set beside name")
		}
	case bundle.SignerName != nil:
		v.add(validation.IsDomainPrefixedPath(at.Child("signerName"), *bundle.SignerName)...)
		v.selector(at.Child("labelSelector"), bundle.LabelSelector)
	default:
		v.required(at, "needs either name or signerName")
	}
	v.fileOnce(at.Child("path"), bundle.Path, written)
}

// certificate checks KEP-4317.
func (v *validator) certificate(certificate *v1.PodCertificateProjection, at *field.Path, written map[string]bool) {
	v.add(validation.IsDomainPrefixedPath(at.Child("signerName"), certificate.SignerName)...)
	oneOf(&v.checker, at.Child("keyType"), certificate.KeyType,
		"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
	if seconds := certificate.MaxExpirationSeconds; seconds != nil {
		v.between(at.Child("maxExpirationSeconds"), int64(*seconds), minCertificateLifetime, maxCertificateLifetime)
	}
	files := [][2]string{
		{"credentialBundlePath", certificate.CredentialBundlePath},
		{"keyPath", certificate.KeyPath},
		{"certificateChainPath", certificate.CertificateChainPath},
	}
	given := 0
	for _, file := range files {
		if file[1] != "" {
			given++
			v.fileOnce(at.Child(file[0]), file[1], written)
		}
	}
	if given == 0 {
		v.required(at, "needs credentialBundlePath, keyPath or certificateChainPath")
	}
}
