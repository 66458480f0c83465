package podspec

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// UsedVolumes lists the volumes that some container of the pod mounts and that the agent has to mount first, in the pod's order.
// The kubelet leaves the others alone, so that a volume that cannot be had harms nobody who does not use it. Volumes that are
// images are mounted by the runtime.
func UsedVolumes(pod *v1.Pod) []*v1.Volume {
	names := map[string]bool{}
	note := func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for i := range mounts {
			names[mounts[i].Name] = true
		}
		for i := range devices {
			names[devices[i].Name] = true
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			note(list[i].VolumeMounts, list[i].VolumeDevices)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		note(pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].VolumeDevices)
	}
	var out []*v1.Volume
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; names[v.Name] && v.Image == nil {
			out = append(out, v)
		}
	}
	return out
}

// ImageVolumes lists the volumes that the container mounts and that are images, in the pod's order (KEP-4639).
func ImageVolumes(pod *v1.Pod, c *v1.Container) (out []*v1.Volume) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			out = append(out, v)
		}
	}
	return out
}

// ClaimOf is the name of the PersistentVolumeClaim that a volume is of; empty: of none.
func ClaimOf(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

// VolumeKind is the field of the manifest that says what the volume is.
func VolumeKind(v *v1.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if f := source.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// VolumePlugin is the kubelet's name for the plugin of a volume, e.g. "kubernetes.io/empty-dir".
func VolumePlugin(v *v1.Volume) string {
	kind := VolumeKind(v)
	switch kind {
	case "emptyDir":
		kind = "empty-dir"
	case "hostPath":
		kind = "host-path"
	case "configMap":
		kind = "configmap"
	case "downwardAPI":
		kind = "downward-api"
	}
	return "kubernetes.io/" + kind
}
