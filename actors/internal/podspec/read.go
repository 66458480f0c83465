package podspec

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Containers yields the init, regular and ephemeral containers of spec, with their paths below path if it is given. Ephemeral
// containers are converted to v1.Container, which shares their memory.
func Containers(spec *v1.PodSpec, path ...*field.Path) iter.Seq2[*v1.Container, *field.Path] {
	at := func(list string, i int) *field.Path {
		if len(path) == 0 {
			return nil
		}
		return path[0].Child(list).Index(i)
	}
	return func(yield func(*v1.Container, *field.Path) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i], at("initContainers", i)) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], at("containers", i)) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			common := (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(common, at("ephemeralContainers", i)) {
				return
			}
		}
	}
}

// LongRunning lists the sidecars (init containers with restartPolicy Always, KEP-753), then the regular containers of a pod.
func LongRunning(pod *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; translate.RestartsAlways(c) {
			out = append(out, c)
		}
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	return out
}

// Statuses yields the statuses of a pod's containers, init containers first. s may be nil.
func Statuses(s *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return func(yield func(*v1.ContainerStatus) bool) {
		if s == nil {
			return
		}
		for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// UsedVolumes lists the volumes that a container of the pod mounts and that the agent has to mount first, in the pod's order. The
// kubelet ignores the others, so that an unavailable volume only affects its users. The runtime mounts image volumes.
func UsedVolumes(pod *v1.Pod) []*v1.Volume {
	names := map[string]bool{}
	for c := range Containers(&pod.Spec) {
		for i := range c.VolumeMounts {
			names[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			names[c.VolumeDevices[i].Name] = true
		}
	}
	var out []*v1.Volume
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; names[v.Name] && v.Image == nil {
			out = append(out, v)
		}
	}
	return out
}

// VolumeUses reports whether any container of the pod mounts a volume, and whether any has it as a block device.
func VolumeUses(pod *v1.Pod, volume string) (mounted, device bool) {
	for c := range Containers(&pod.Spec) {
		mounted = mounted || slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
		device = device || slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume })
	}
	return mounted, device
}

// ImageVolumes lists the image volumes that the container mounts, in the pod's order (KEP-4639).
func ImageVolumes(pod *v1.Pod, c *v1.Container) (out []*v1.Volume) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			out = append(out, v)
		}
	}
	return out
}

// ClaimOf returns the name of the volume's PersistentVolumeClaim, or "".
func ClaimOf(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}

// VolumeKind returns the field of the manifest with the volume's source.
func VolumeKind(v *v1.Volume) string {
	if kinds := given(v.VolumeSource); len(kinds) > 0 {
		return kinds[0]
	}
	return ""
}

// VolumePlugin returns the kubelet's name of a volume's plugin, e.g. "kubernetes.io/empty-dir".
func VolumePlugin(v *v1.Volume) string {
	kind := VolumeKind(v)
	plugins := map[string]string{
		"emptyDir": "empty-dir", "hostPath": "host-path", "configMap": "configmap", "downwardAPI": "downward-api",
	}
	return "kubernetes.io/" + cmp.Or(plugins[kind], kind)
}

// given lists the fields of a union that are set, by their names in manifests. It uses reflection, so that new fields of the API
// are included.
func given(union any) (names []string) {
	value := reflect.ValueOf(union)
	for i := range value.NumField() {
		if f := value.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			names = append(names, jsonName(value.Type().Field(i)))
		}
	}
	return names
}

// jsonName returns the name of a field in manifests, or "" for an embedded one.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// GatesClosed names the pod's readiness gates that are not open, with reasons (KEP-580), or returns "". Other components set the
// conditions, which come with the pod's object.
func GatesClosed(pod *v1.Pod) string {
	var closed []string
	for _, g := range pod.Spec.ReadinessGates {
		is := v1.ConditionStatus("")
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == g.ConditionType {
				is = pod.Status.Conditions[i].Status
			}
		}
		switch is {
		case v1.ConditionTrue:
		case "":
			closed = append(closed, fmt.Sprintf("readiness gate %q: the condition is not set", g.ConditionType))
		default:
			closed = append(closed, fmt.Sprintf("readiness gate %q: the condition is %s", g.ConditionType, is))
		}
	}
	return strings.Join(closed, ", ")
}

// longestGrace is a hundred years: the API accepts any number of seconds, but a time.Duration only holds 292 years.
const longestGrace = 100 * 365 * 24 * 60 * 60

// Grace converts a grace period in seconds. It limits the period to a hundred years, so that deadlines computed from it do not
// overflow.
func Grace(seconds int64) time.Duration {
	return time.Duration(min(seconds, longestGrace)) * time.Second
}

// GracePeriod returns the last of the given periods that is set, in seconds and at least 1 s, or the API's default.
func GracePeriod(of ...*int64) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	for _, s := range of {
		if s != nil {
			seconds = *s
		}
	}
	return Grace(max(seconds, 1))
}
