package translate

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// EnvVar is one resolved environment variable.
type EnvVar struct{ Name, Value string }

// EnvSources provides the values of a container's environment. The functions are called from ResolveEnv's goroutine.
type EnvSources struct {
	// Services are the variables of the namespace's Services (enableServiceLinks).
	Services map[string]string
	// ConfigMap and Secret return the object of the pod's namespace. found is false with a nil error if the object is absent,
	// which optional references tolerate.
	ConfigMap func(name string) (object *v1.ConfigMap, found bool, err error)
	Secret    func(name string) (object *v1.Secret, found bool, err error)
	// File returns the value of a key in a file of a mounted volume (KEP-3721); a missing file has none.
	File func(volume, path, key string) (value string, found bool, err error)
	// HostIPs and PodIPs are in the order of the node's address families.
	HostIPs, PodIPs []string
	// Allocatable is the node's, for limits that are not set.
	Allocatable v1.ResourceList
}

// ResolveEnv returns the container's environment: envFrom in order, overridden by env in order, with $(NAME) expanded from
// earlier variables and from the services; then the remaining variables of services, by name. A name set twice keeps its first
// place and its last value. (The kubelet uses the order of a Go map, so no container can depend on it.) An environment too large
// for any program is shortened, but stays too large. As with the kubelet, the runtime creates the container, its start fails, and
// the restart policy applies.
func ResolveEnv(pod *v1.Pod, container *v1.Container, src EnvSources) ([]EnvVar, error) {
	r := envResolver{pod: pod, container: container, src: src, values: map[string]string{}, left: maxStrings}
	for _, from := range container.EnvFrom {
		if err := r.addAll(from); err != nil {
			return nil, err
		}
	}
	for _, v := range container.Env {
		value, skip, err := r.value(v)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", shortened(v.Name), err)
		}
		if skip {
			continue
		}
		r.set(v.Name, value)
	}
	for _, name := range slices.Sorted(maps.Keys(src.Services)) {
		if _, ok := r.values[name]; !ok {
			r.set(name, src.Services[name])
		}
	}
	env := make([]EnvVar, 0, len(r.order))
	for _, name := range r.order {
		env = append(env, EnvVar{Name: name, Value: r.values[name]})
	}
	return env, nil
}

func envMap(env []EnvVar) map[string]string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return values
}

type envResolver struct {
	pod       *v1.Pod
	container *v1.Container
	src       EnvSources
	values    map[string]string
	order     []string
	left      int // remaining bytes of the environment
}

// set adds a variable. It shortens a value that is too long for a program, but keeps it too long, and ignores variables once the
// environment is too large.
func (r *envResolver) set(name, value string) {
	value = cutString(value)
	earlier, ok := r.values[name]
	left := r.left
	if ok {
		left += envSize(name, earlier)
	}
	if left < 0 {
		return
	}
	if !ok {
		r.order = append(r.order, name)
	}
	r.values[name], r.left = value, left-envSize(name, value)
}

// envSize returns the size of a variable in bytes: NAME=value and a zero byte.
func envSize(name, value string) int { return len(name) + len(value) + 2 }

// addAll adds every key of a ConfigMap or Secret.
func (r *envResolver) addAll(from v1.EnvFromSource) error {
	var data map[string]string
	var err error
	switch {
	case from.ConfigMapRef != nil:
		data, err = r.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		data, err = r.secret(from.SecretRef.Name, from.SecretRef.Optional)
	}
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		r.set(from.Prefix+key, data[key])
	}
	return nil
}

// value resolves one variable; skip is set if an optional source has no value.
func (r *envResolver) value(v v1.EnvVar) (value string, skip bool, err error) {
	if v.Value != "" || v.ValueFrom == nil {
		return Expand(v.Value, lookupIn(r.values, r.src.Services)), false, nil
	}
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		value, err = podField(r.pod, from.FieldRef.FieldPath, r.src)
		return value, false, err
	case from.ResourceFieldRef != nil:
		value, err = resourceField(r.pod, r.container, from.ResourceFieldRef, r.src.Allocatable)
		return value, false, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := r.configMap(ref.Name, ref.Optional)
		return r.key(data, err, "ConfigMap", ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := r.secret(ref.Name, ref.Optional)
		return r.key(data, err, "Secret", ref.Name, ref.Key, ref.Optional)
	case from.FileKeyRef != nil:
		ref := from.FileKeyRef
		value, found, err := r.src.File(ref.VolumeName, ref.Path, ref.Key)
		if err == nil && !found && !isTrue(ref.Optional) {
			err = fmt.Errorf("file %s of volume %q has no value for key %s", ref.Path, ref.VolumeName, ref.Key)
		}
		return value, !found, err
	}
	return "", false, nil
}

// key returns one value of a ConfigMap or Secret.
func (r *envResolver) key(data map[string]string, err error, kind, name, key string, optional *bool) (string, bool, error) {
	value, ok := data[key]
	if err == nil && !ok && !isTrue(optional) {
		err = r.object(kind, name).LacksKey(key)
	}
	return value, !ok, err
}

// configMap returns the object's data, or nil if it is absent and optional.
func (r *envResolver) configMap(name string, optional *bool) (map[string]string, error) {
	object, found, err := r.src.ConfigMap(name)
	if !found || err != nil {
		return nil, r.absent("ConfigMap", name, optional, err)
	}
	return object.Data, nil
}

func (r *envResolver) secret(name string, optional *bool) (map[string]string, error) {
	object, found, err := r.src.Secret(name)
	if !found || err != nil {
		return nil, r.absent("Secret", name, optional, err)
	}
	data := make(map[string]string, len(object.Data))
	for key, value := range object.Data {
		data[key] = string(value)
	}
	return data, nil
}

// absent returns the error about a missing object, or nil if it is optional.
func (r *envResolver) absent(kind, name string, optional *bool, err error) error {
	switch {
	case err != nil:
		return r.object(kind, name).Unread(err)
	case isTrue(optional):
		return nil
	}
	return r.object(kind, name).Absent()
}

func (r *envResolver) object(kind, name string) messages.Cause {
	return messages.Cause{Kind: kind, Name: r.pod.Namespace + "/" + name}
}

func isTrue(b *bool) bool { return b != nil && *b }
