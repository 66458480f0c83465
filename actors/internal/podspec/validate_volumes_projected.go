package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
		}
		if source.ClusterTrustBundle != nil {
			given++
		}
		if source.PodCertificate != nil {
			given++
		}
		if given > 1 {
			v.forbidden(here, fmt.Sprintf("may be one kind of source only, has %d", given))
		}
	}
}
