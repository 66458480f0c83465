package podspec

import (
	v1 "k8s.io/api/core/v1"
)

// tokenLifetime is how long a projected service account token lives where the manifest does not say, in seconds.
const tokenLifetime = 60 * 60

func defaultVolume(volume *v1.Volume) {
	source := &volume.VolumeSource
	if *source == (v1.VolumeSource{}) {
		source.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if source.HostPath != nil {
		setPointer(&source.HostPath.Type, v1.HostPathUnset)
	}
	if source.Image != nil {
		setDefault(&source.Image.PullPolicy, pullPolicyFor(source.Image.Reference))
	}
	if source.Secret != nil {
		setPointer(&source.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if source.ConfigMap != nil {
		setPointer(&source.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if source.DownwardAPI != nil {
		setPointer(&source.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(source.DownwardAPI.Items)
	}
	if source.Projected != nil {
		defaultProjected(source.Projected)
	}
}

func defaultProjected(projected *v1.ProjectedVolumeSource) {
	setPointer(&projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
	for i := range projected.Sources {
		source := &projected.Sources[i]
		if source.DownwardAPI != nil {
			defaultDownwardFiles(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			setPointer(&source.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
		}
	}
}

func defaultDownwardFiles(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		defaultFieldRef(files[i].FieldRef)
	}
}
