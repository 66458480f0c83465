package cri

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// EnvVar is one resolved environment variable.
type EnvVar struct{ Name, Value string }

// EnvSources is where the values of a container's environment come from. A nil
// function means that this node has no such source; a container that needs it is
// an error that says so. The functions are called from ResolveEnv's goroutine.
type EnvSources struct {
	// Services are the variables of the namespace's Services (enableServiceLinks).
	Services map[string]string
	// ConfigMap and Secret return the object of the pod's namespace. An error
	// found says whether it is absent, which optional references forgive.
	ConfigMap func(name string) (object *v1.ConfigMap, found bool, err error)
	Secret    func(name string) (object *v1.Secret, found bool, err error)
	// File returns the value of a key in a file of a mounted volume (KEP-3721); a file that is not there has none.
	File func(volume, path, key string) (value string, found bool, err error)
	// HostIPs and PodIPs are in the order of the node's address families.
	HostIPs, PodIPs []string
	// Allocatable is the node's, for limits that are not set.
	Allocatable v1.ResourceList
}

// ResolveEnv returns the container's environment: envFrom in order, overridden
// by env in order, with $(NAME) expanded from what came before and from the
// services; then the services' variables that nothing overrides, by name. A name
// set twice keeps its first place and its last value. (The kubelet's order is
// that of a Go map, so none can depend on it.) A variable that no program can be
// given, by itself or with those before it, is an error that names it.
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
		if err := r.set(v.Name, value); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(src.Services)) {
		if _, ok := r.values[name]; !ok {
			if err := r.set(name, src.Services[name]); err != nil {
				return nil, err
			}
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
	left      int // bytes that the environment can have yet
}

func (r *envResolver) set(name, value string) error {
	size := envSize(name, value)
	earlier, ok := r.values[name]
	if ok {
		r.left += envSize(name, earlier)
	}
	switch r.left -= size; {
	case size > maxString:
		return fmt.Errorf("environment variable %s: %w", shortened(name), errTooLong())
	case r.left < 0:
		return fmt.Errorf("environment variable %s: %w", shortened(name), errTooMany())
	case !ok:
		r.order = append(r.order, name)
	}
	r.values[name] = value
	return nil
}

// envSize is the size of a variable in bytes: NAME=value and a zero.
func envSize(name, value string) int { return len(name) + len(value) + 2 }

// addAll takes every key of a ConfigMap or Secret.
func (r *envResolver) addAll(from v1.EnvFromSource) error {
	data := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		object, found, err := r.configMap(from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional))
		if err != nil || !found {
			return err
		}
		data = object.Data
	case from.SecretRef != nil:
		object, found, err := r.secret(from.SecretRef.Name, isTrue(from.SecretRef.Optional))
		if err != nil || !found {
			return err
		}
		for key, value := range object.Data {
			data[key] = string(value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := r.set(from.Prefix+key, data[key]); err != nil {
			return err
		}
	}
	return nil
}

// value resolves one variable; skip means an optional source has nothing.
func (r *envResolver) value(v v1.EnvVar) (value string, skip bool, err error) {
	if v.Value != "" || v.ValueFrom == nil {
		value, err = Expand(v.Value, lookupIn(r.values, r.src.Services))
		return value, false, err
	}
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		value, err = podField(r.pod, from.FieldRef.FieldPath, r.src)
		return value, false, err
	case from.ResourceFieldRef != nil:
		value, err = resourceField(r.pod, r.container, from.ResourceFieldRef, r.src.Allocatable)
		return value, false, err
	case from.ConfigMapKeyRef != nil:
		return r.configMapKey(from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return r.secretKey(from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return r.fileKey(from.FileKeyRef)
	}
	return "", false, nil
}

func (r *envResolver) configMapKey(ref *v1.ConfigMapKeySelector) (value string, skip bool, err error) {
	object, found, err := r.configMap(ref.Name, isTrue(ref.Optional))
	if err != nil || !found {
		return "", true, err
	}
	value, ok := object.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("ConfigMap %s/%s has no key %s", r.pod.Namespace, ref.Name, ref.Key)
	}
	return value, !ok, nil
}

func (r *envResolver) secretKey(ref *v1.SecretKeySelector) (value string, skip bool, err error) {
	object, found, err := r.secret(ref.Name, isTrue(ref.Optional))
	if err != nil || !found {
		return "", true, err
	}
	bytes, ok := object.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("the Secret %s/%s has no key %s", r.pod.Namespace, ref.Name, ref.Key)
	}
	return string(bytes), !ok, nil
}

func (r *envResolver) fileKey(ref *v1.FileKeySelector) (value string, skip bool, err error) {
	if r.src.File == nil {
		return "", false, fmt.Errorf("key %s of volume %s: this node cannot read environment files", ref.Key, ref.VolumeName)
	}
	value, found, err := r.src.File(ref.VolumeName, ref.Path, ref.Key)
	if err != nil {
		return "", false, err
	}
	if !found && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("file %s of volume %q has no value for key %s", ref.Path, ref.VolumeName, ref.Key)
	}
	return value, !found, nil
}

// configMap returns the object; found is false, without an error, only where it
// is absent and optional.
func (r *envResolver) configMap(name string, optional bool) (*v1.ConfigMap, bool, error) {
	if r.src.ConfigMap == nil {
		return nil, false, fmt.Errorf("ConfigMap %s/%s: this node has no source of ConfigMaps", r.pod.Namespace, name)
	}
	object, found, err := r.src.ConfigMap(name)
	switch {
	case err != nil:
		err = fmt.Errorf("ConfigMap %s/%s: %w", r.pod.Namespace, name, err)
	case !found && !optional:
		err = fmt.Errorf("ConfigMap %s/%s does not exist", r.pod.Namespace, name)
	}
	return object, found, err
}

func (r *envResolver) secret(name string, optional bool) (*v1.Secret, bool, error) {
	if r.src.Secret == nil {
		return nil, false, fmt.Errorf("the Secret %s/%s: this node has no source of Secrets", r.pod.Namespace, name)
	}
	object, found, err := r.src.Secret(name)
	switch {
	case err != nil:
		err = fmt.Errorf("the Secret %s/%s: %w", r.pod.Namespace, name, err)
	case !found && !optional:
		err = fmt.Errorf("the Secret %s/%s does not exist", r.pod.Namespace, name)
	}
	return object, found, err
}

func isTrue(b *bool) bool { return b != nil && *b }
