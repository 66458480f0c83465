package podspec

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	envFieldPaths = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	fileFieldPaths = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
	}
	containerResourcePaths = []string{
		"limits.cpu", "limits.memory", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "requests.ephemeral-storage",
	}
	byteDivisors = []string{
		"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
	}
	cpuDivisors = []string{"1", "1m"}
)

func (v *validator) env(env []v1.EnvVar, at *field.Path) {
	for i, variable := range env {
		here := at.Index(i)
		v.name(here.Child("name"), variable.Name, validation.IsRelaxedEnvVarName)
		if variable.ValueFrom == nil {
			continue
		}
		source := here.Child("valueFrom")
		if variable.Value != "" {
			v.invalid(source, "", "may not be set beside a value")
		}
		v.envSource(variable.ValueFrom, source)
	}
}

func (v *validator) envSource(source *v1.EnvVarSource, at *field.Path) {
	if ref := source.FieldRef; ref != nil {
		v.fieldRef(ref, at.Child("fieldRef"), envFieldPaths)
	}
	if ref := source.ResourceFieldRef; ref != nil {
		v.resourceRef(ref, at.Child("resourceFieldRef"))
	}
	if ref := source.ConfigMapKeyRef; ref != nil {
		v.keyRef(ref.Name, ref.Key, at.Child("configMapKeyRef"))
	}
	if ref := source.SecretKeyRef; ref != nil {
		v.keyRef(ref.Name, ref.Key, at.Child("secretKeyRef"))
	}
	if ref := source.FileKeyRef; ref != nil {
		v.fileKeyRef(ref, at.Child("fileKeyRef"))
	}
	v.oneSource(at, *source)
}

// oneSource checks that exactly one of the fields of a union is set.
func (v *validator) oneSource(at *field.Path, union any) {
	if n := len(given(union)); n != 1 {
		v.invalid(at, "", fmt.Sprintf("needs exactly one source, has %d", n))
	}
}

func (v *validator) keyRef(name, key string, at *field.Path) {
	v.subdomain(at.Child("name"), name)
	v.name(at.Child("key"), key, validation.IsConfigMapKey)
}

// fileKeyRef checks a variable that is read from a file of the pod (KEP-3721).
func (v *validator) fileKeyRef(ref *v1.FileKeySelector, at *field.Path) {
	v.name(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	if ref.Path == "" {
		v.required(at.Child("path"), "")
	}
	v.noStepsBack(at.Child("path"), ref.Path)
	volume, found := v.volumes[ref.VolumeName]
	switch {
	case ref.VolumeName == "":
		v.required(at.Child("volumeName"), "")
	case !found:
		v.add(field.NotFound(at.Child("volumeName"), ref.VolumeName))
	case volume.EmptyDir == nil:
		v.invalid(at.Child("volumeName"), ref.VolumeName, "must name an emptyDir volume")
	}
}

// fieldRef checks a reference to a field of the pod itself: one of the allowed paths, or one label or annotation by its key.
func (v *validator) fieldRef(ref *v1.ObjectFieldSelector, at *field.Path, allowed []string) {
	if ref.APIVersion != "v1" {
		oneOf(&v.checker, at.Child("apiVersion"), ref.APIVersion, "v1")
		return
	}
	path := at.Child("fieldPath")
	object, key, subscripted := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
	subscripted = subscripted && strings.HasSuffix(ref.FieldPath, "']")
	switch {
	case ref.FieldPath == "":
		v.required(path, "")
	case subscripted && object == "metadata.annotations":
		v.invalid(path, ref.FieldPath, validation.IsQualifiedName(strings.ToLower(key))...)
	case subscripted && object == "metadata.labels":
		v.invalid(path, ref.FieldPath, validation.IsQualifiedName(key)...)
	case !slices.Contains(allowed, ref.FieldPath):
		v.add(field.NotSupported(path, ref.FieldPath, allowed))
	}
}

func (v *validator) resourceRef(ref *v1.ResourceFieldSelector, at *field.Path) {
	kind, resource, _ := strings.Cut(ref.Resource, ".")
	hugePages := isHugePages(v1.ResourceName(resource)) && (kind == "limits" || kind == "requests")
	switch {
	case ref.Resource == "":
		v.required(at.Child("resource"), "")
	case !hugePages && !slices.Contains(containerResourcePaths, ref.Resource):
		v.add(field.NotSupported(at.Child("resource"), ref.Resource, containerResourcePaths))
	}
	if ref.Divisor.IsZero() {
		return
	}
	allowed := byteDivisors
	if resource == "cpu" {
		allowed = cpuDivisors
	}
	if divisor := ref.Divisor.String(); !slices.Contains(allowed, divisor) {
		v.add(field.NotSupported(at.Child("divisor"), divisor, allowed))
	}
}

func (v *validator) envFrom(sources []v1.EnvFromSource, at *field.Path) {
	for i, source := range sources {
		here := at.Index(i)
		if source.Prefix != "" {
			v.invalid(here.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName(source.Prefix)...)
		}
		if source.ConfigMapRef != nil {
			v.subdomain(here.Child("configMapRef", "name"), source.ConfigMapRef.Name)
		}
		if source.SecretRef != nil {
			v.subdomain(here.Child("secretRef", "name"), source.SecretRef.Name)
		}
		v.oneSource(here, source)
	}
}
