package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
	if deref(mount.MountPropagation) == v1.MountPropagationBidirectional && !isPrivileged(c) {
		v.forbidden(propagation, "only a privileged container may pass mounts on to the host")
	}
	recursive := at.Child("recursiveReadOnly")
	ifSet(&v.checker, recursive, mount.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled,
		v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	switch deref(mount.RecursiveReadOnly) {
	case v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible:
		if !mount.ReadOnly {
			v.forbidden(recursive, "needs readOnly")
		}
		if mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone {
			v.forbidden(recursive, "needs mountPropagation to be None")
		}
	}
}

func isPrivileged(c *v1.Container) bool {
	return c.SecurityContext != nil && deref(c.SecurityContext.Privileged)
}
