package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// apiVolume checks the kinds whose content is an object of the API, or the pod itself.
func (v *validator) apiVolume(volume *v1.Volume, at *field.Path) {
	if source := volume.ConfigMap; source != nil {
		here := at.Child("configMap")
		v.needs(here, "name", source.Name)
		v.fileMode(here.Child("defaultMode"), source.DefaultMode)
		v.items(source.Items, here.Child("items"), nil)
	}
	if source := volume.Secret; source != nil {
		here := at.Child("secret")
		v.needs(here, "secretName", source.SecretName)
		v.fileMode(here.Child("defaultMode"), source.DefaultMode)
		v.items(source.Items, here.Child("items"), nil)
	}
	if source := volume.DownwardAPI; source != nil {
		here := at.Child("downwardAPI")
		v.fileMode(here.Child("defaultMode"), source.DefaultMode)
		v.downwardFiles(source.Items, here.Child("items"), nil)
	}
	if source := volume.Projected; source != nil {
		v.projected(source, at.Child("projected"))
	}
}

// items checks which keys become which files; written, unless nil, collects the files of all sources of a volume.
func (v *validator) items(items []v1.KeyToPath, at *field.Path, written map[string]bool) {
	for i, item := range items {
		here := at.Index(i)
		v.needs(here, "key", item.Key)
		v.fileMode(here.Child("mode"), item.Mode)
		v.fileOnce(here.Child("path"), item.Path, written)
	}
}

// fileOnce checks one file that a volume writes, and that no other source of the volume writes it.
func (v *validator) fileOnce(at *field.Path, path string, written map[string]bool) {
	v.fileInside(at, path)
	if written != nil {
		v.unique(at, written, path)
	}
}

func (v *validator) downwardFiles(files []v1.DownwardAPIVolumeFile, at *field.Path, written map[string]bool) {
	for i := range files {
		file, here := &files[i], at.Index(i)
		v.fileMode(here.Child("mode"), file.Mode)
		v.fileOnce(here.Child("path"), file.Path, written)
		given := 0
		if file.FieldRef != nil {
			given++
			v.fieldRef(file.FieldRef, here.Child("fieldRef"), fileFieldPaths)
		}
		if file.ResourceFieldRef != nil {
			given++
			v.needs(here.Child("resourceFieldRef"), "containerName", file.ResourceFieldRef.ContainerName)
			v.resourceRef(file.ResourceFieldRef, here.Child("resourceFieldRef"))
		}
		if given != 1 {
			v.invalid(here, file.Path, fmt.Sprintf("needs either fieldRef or resourceFieldRef, has %d of them", given))
		}
	}
}
