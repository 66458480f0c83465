package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
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
		v.oneKind(volume, here)
		v.localVolume(volume, here)
		v.apiVolume(volume, here)
	}
}

// oneKind checks that a volume has exactly one source.
func (v *validator) oneKind(volume *v1.Volume, at *field.Path) {
	switch kinds := given(volume.VolumeSource); {
	case len(kinds) == 0:
		v.required(at, "needs a kind of volume")
	case len(kinds) > 1:
		v.forbidden(at.Child(kinds[1]), fmt.Sprintf("a volume has one kind, this one is %s already", kinds[0]))
	}
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
	if nfs := volume.NFS; nfs != nil {
		v.needs(at.Child("nfs"), "server", nfs.Server)
		if v.needs(at.Child("nfs"), "path", nfs.Path); nfs.Path != "" && nfs.Path[0] != '/' {
			v.invalid(at.Child("nfs", "path"), nfs.Path, "must be an absolute path")
		}
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

// apiVolume checks the kinds that take their content from an object of the API, or from the pod itself.
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

// items checks the mapping of keys to files; written, unless nil, collects the files of all sources of a volume.
func (v *validator) items(items []v1.KeyToPath, at *field.Path, written map[string]bool) {
	for i, item := range items {
		here := at.Index(i)
		v.needs(here, "key", item.Key)
		v.fileMode(here.Child("mode"), item.Mode)
		v.fileOnce(here.Child("path"), item.Path, written)
	}
}

// fileOnce checks a file of a volume, and that no other source of the volume writes it.
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
		if file.FieldRef != nil {
			v.fieldRef(file.FieldRef, here.Child("fieldRef"), fileFieldPaths)
		}
		if file.ResourceFieldRef != nil {
			v.needs(here.Child("resourceFieldRef"), "containerName", file.ResourceFieldRef.ContainerName)
			v.resourceRef(file.ResourceFieldRef, here.Child("resourceFieldRef"))
		}
		if (file.FieldRef == nil) == (file.ResourceFieldRef == nil) {
			v.invalid(here, file.Path, "needs either fieldRef or resourceFieldRef")
		}
	}
}
func (v *validator) projected(projected *v1.ProjectedVolumeSource, at *field.Path) {
	v.fileMode(at.Child("defaultMode"), projected.DefaultMode)
	written := map[string]bool{}
	for i := range projected.Sources {
		source, here := &projected.Sources[i], at.Child("sources").Index(i)
		if source.Secret != nil {
			v.needs(here.Child("secret"), "name", source.Secret.Name)
			v.items(source.Secret.Items, here.Child("secret", "items"), written)
		}
		if source.ConfigMap != nil {
			v.needs(here.Child("configMap"), "name", source.ConfigMap.Name)
			v.items(source.ConfigMap.Items, here.Child("configMap", "items"), written)
		}
		if source.DownwardAPI != nil {
			v.downwardFiles(source.DownwardAPI.Items, here.Child("downwardAPI", "items"), written)
		}
		if n := len(given(*source)); n > 1 {
			v.forbidden(here, fmt.Sprintf("may be one kind of source only, has %d", n))
		}
	}
}

func (v *validator) volumeMounts(c *v1.Container, at *field.Path) {
	paths := map[string]bool{}
	for i := range c.VolumeMounts {
		mount, here := &c.VolumeMounts[i], at.Index(i)
		v.volumeName(mount.Name, here.Child("name"))
		if mount.MountPath == "" {
			v.required(here.Child("mountPath"), "")
		}
		if mount.MountPath != "" && paths[mount.MountPath] {
			v.invalid(here.Child("mountPath"), mount.MountPath, "another mount of this container has the same path")
		}
		paths[mount.MountPath] = true
		v.subPath(mount, here)
		v.mountMode(c, mount, here)
	}
}

// volumeDevices checks the block devices of a container. Only claims have them.
func (v *validator) volumeDevices(c *v1.Container, at *field.Path) {
	names, paths := map[string]bool{}, map[string]bool{}
	for _, m := range c.VolumeMounts {
		names[m.Name], paths[m.MountPath] = true, true
	}
	for i, device := range c.VolumeDevices {
		here := at.Index(i)
		v.volumeName(device.Name, here.Child("name"))
		v.unique(here.Child("name"), names, device.Name)
		if source := v.volumes[device.Name]; source != nil && source.PersistentVolumeClaim == nil && source.Ephemeral == nil {
			v.invalid(here.Child("name"), device.Name, "only persistentVolumeClaim and ephemeral volumes can be devices")
		}
		v.needs(here, "devicePath", device.DevicePath)
		v.noStepsBack(here.Child("devicePath"), device.DevicePath)
		v.unique(here.Child("devicePath"), paths, device.DevicePath)
	}
}

// volumeName checks a reference to one of the pod's volumes.
func (v *validator) volumeName(name string, at *field.Path) {
	if name == "" {
		v.required(at, "")
	} else if v.volumes[name] == nil {
		v.add(field.NotFound(at, name))
	}
}

func (v *validator) subPath(mount *v1.VolumeMount, at *field.Path) {
	v.pathInside(at.Child("subPath"), mount.SubPath)
	v.pathInside(at.Child("subPathExpr"), mount.SubPathExpr)
	if mount.SubPath != "" && mount.SubPathExpr != "" {
		v.invalid(at.Child("subPathExpr"), mount.SubPathExpr, "may not be set beside subPath")
	}
}

func (v *validator) mountMode(c *v1.Container, mount *v1.VolumeMount, at *field.Path) {
	propagation := at.Child("mountPropagation")
	ifSet(&v.checker, propagation, mount.MountPropagation, v1.MountPropagationNone,
		v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
	if ptr.Deref(mount.MountPropagation, "") == v1.MountPropagationBidirectional &&
		(c.SecurityContext == nil || !ptr.Deref(c.SecurityContext.Privileged, false)) {
		v.forbidden(propagation, "only a privileged container may pass mounts on to the host")
	}
	recursive := at.Child("recursiveReadOnly")
	ifSet(&v.checker, recursive, mount.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled,
		v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	switch ptr.Deref(mount.RecursiveReadOnly, "") {
	case v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible:
		if !mount.ReadOnly {
			v.forbidden(recursive, "needs readOnly")
		}
		if mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone {
			v.forbidden(recursive, "needs mountPropagation to be None")
		}
	}
}
