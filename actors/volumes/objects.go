package volumes

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// configMap is the keys of a ConfigMap as files.
type configMap struct{}

func (configMap) handles(v *v1.Volume) bool { return v.ConfigMap != nil }

func (configMap) files(p podFolder, v *v1.Volume) (map[string]file, error) {
	out := map[string]file{}
	k, err := configMapData(p, v.ConfigMap.Name, v.ConfigMap.Optional)
	if err != nil {
		return nil, err
	}
	return out, k.files(out, v.ConfigMap.Items, modeOr(v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode))
}

// secret is the keys of a Secret as files. They lie in memory only.
type secret struct{}

func (secret) handles(v *v1.Volume) bool { return v.Secret != nil }

func (secret) files(p podFolder, v *v1.Volume) (map[string]file, error) {
	out := map[string]file{}
	k, err := secretData(p, v.Secret.SecretName, v.Secret.Optional)
	if err != nil {
		return nil, err
	}
	return out, k.files(out, v.Secret.Items, modeOr(v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode))
}

// projected is several of the others in one folder. Where two write the same file, the later one counts.
type projected struct{}

func (projected) handles(v *v1.Volume) bool { return v.Projected != nil }

func (projected) files(p podFolder, v *v1.Volume) (map[string]file, error) {
	out := map[string]file{}
	mode := modeOr(v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
	for i := range v.Projected.Sources {
		if err := projectedFiles(p, out, &v.Projected.Sources[i], mode); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func projectedFiles(p podFolder, out map[string]file, source *v1.VolumeProjection, mode int32) error {
	switch {
	case source.ConfigMap != nil:
		k, err := configMapData(p, source.ConfigMap.Name, source.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return k.files(out, source.ConfigMap.Items, mode)
	case source.Secret != nil:
		k, err := secretData(p, source.Secret.Name, source.Secret.Optional)
		if err != nil {
			return err
		}
		return k.files(out, source.Secret.Items, mode)
	case source.DownwardAPI != nil:
		return downwardFiles(p, out, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		return tokenFile(p, out, source.ServiceAccountToken, mode)
	case source.ClusterTrustBundle != nil:
		return permanent("projected clusterTrustBundle needs an API server")
	case source.PodCertificate != nil:
		return permanent("projected podCertificate needs an API server")
	}
	return nil
}

// usesObjects says whether a pod has volumes with ConfigMaps or Secrets in them.
func usesObjects(pod *v1.Pod) bool {
	return slices.ContainsFunc(podspec.UsedVolumes(pod), holdsObjects)
}

func holdsObjects(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil ||
		v.Projected != nil && slices.ContainsFunc(v.Projected.Sources,
			func(s v1.VolumeProjection) bool { return s.ConfigMap != nil || s.Secret != nil })
}
