package podspec

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (v *validator) checkVolumes(at *field.Path) {
	names := map[string]bool{}
	for i := range v.spec.Volumes {
		volume, here := &v.spec.Volumes[i], at.Index(i)
		v.label(here.Child("name"), volume.Name)
		v.unique(here.Child("name"), names, volume.Name)
		if volume.Name != "" && v.volumes[volume.Name] == nil {
			v.volumes[volume.Name] = volume
		}
		v.oneSource(volume, here)
		v.localVolume(volume, here)
		v.apiVolume(volume, here)
	}
}

// oneSource checks that a volume comes from exactly one place. The kinds are read from the type, so that one which
// the API gains is counted too.
func (v *validator) oneSource(volume *v1.Volume, at *field.Path) {
	source := reflect.ValueOf(volume.VolumeSource)
	var given []string
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			given = append(given, jsonName(source.Type().Field(i)))
		}
	}
	switch {
	case len(given) == 0:
		v.required(at, "needs a kind of volume")
	case len(given) > 1:
		v.forbidden(at.Child(given[1]), fmt.Sprintf("a volume has one kind, this one is %s already", given[0]))
	}
}

// jsonName returns the name of a field in manifests, "" for one that is part of the struct around it.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func (v *validator) localVolume(volume *v1.Volume, at *field.Path) {
	if dir := volume.EmptyDir; dir != nil {
		if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
			v.invalid(at.Child("emptyDir", "sizeLimit"), dir.SizeLimit.String(), "must not be negative")
		}
		if dir.Mode != nil && (*dir.Mode < 0 || *dir.Mode > 0o1777) {
			v.invalid(at.Child("emptyDir", "mode"), *dir.Mode, "must be between 0 and 01777 (decimal 1023)")
		}
	}
	if image := volume.Image; image != nil {
		v.needs(at.Child("image"), "reference", image.Reference)
		ifSet(&v.checker, at.Child("image", "pullPolicy"), &image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
	if host := volume.HostPath; host != nil {
		path := at.Child("hostPath", "path")
		if host.Path == "" {
			v.required(path, "")
		}
		v.noStepsBack(path, host.Path)
		ifSet(&v.checker, at.Child("hostPath", "type"), host.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate,
			v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev,
			v1.HostPathBlockDev)
	}
}

// needs checks that a text field is not empty.
func (v *validator) needs(at *field.Path, name, value string) {
	if value == "" {
		v.required(at.Child(name), "")
	}
}
