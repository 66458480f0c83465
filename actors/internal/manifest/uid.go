package manifest

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hashPod computes the UID that the kubelet of Kubernetes 1.36 gives a static pod, so that the pods of such a kubelet
// are taken over with nothing restarted. That is the FNV-128a hash of a text of the whole defaulted pod in the API's
// internal types, followed by its origin. The text names every field of those types, set or not, so each minor version
// of the kubelet computes another; this one stays with the types of 1.36 (layout.go) however the API grows, so that a
// new version of this agent restarts nothing either. A field that the API gained since is in the text where it is set.
func hashPod(pod *v1.Pod, origin string) types.UID {
	subject := *pod
	subject.TypeMeta = metav1.TypeMeta{}
	subject.Status = v1.PodStatus{}
	hash := fnv.New128a()
	text := &dump{to: hash, spec: reflect.ValueOf(&subject.Spec).Elem()}
	text.value(reflect.ValueOf(&subject), true)
	text.print(origin)
	return types.UID(hex.EncodeToString(hash.Sum(nil)))
}

// dump writes a value as the kubelet's hash reads it: every type and field by name, pointers followed, maps in order.
type dump struct {
	to   io.Writer
	spec reflect.Value // the pod's spec, where fields are found that the internal types keep in its security context
}

func (d *dump) print(text string) {
	// A hash never fails to write.
	_, _ = io.WriteString(d.to, text)
}

// value writes a value, preceded by its type if withType is true.
func (d *dump) value(v reflect.Value, withType bool) {
	if withType {
		d.print("(" + typeName(v.Type()) + ")")
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			d.print("<nil>")
			return
		}
		d.value(v.Elem(), false)
	case reflect.Struct:
		d.fields(v)
	case reflect.Slice:
		d.items(v)
	case reflect.Map:
		d.entries(v)
	case reflect.String:
		d.print(v.String())
	case reflect.Bool:
		d.print(strconv.FormatBool(v.Bool()))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64, reflect.Uint:
		d.print(strconv.FormatUint(v.Uint(), 10))
	case reflect.Int, reflect.Int8, reflect.Int32, reflect.Int64:
		d.print(strconv.FormatInt(v.Int(), 10))
	default:
		d.print(fmt.Sprint(v))
	}
}

func (d *dump) fields(v reflect.Value) {
	d.print("{")
	for i, name := range fieldsOf(v) {
		if i > 0 {
			d.print(" ")
		}
		d.print(name + ":")
		d.value(d.fieldNamed(v, name), true)
	}
	d.print("}")
}

// fieldNamed finds a field in the value, or in the spec around a security context.
func (d *dump) fieldNamed(v reflect.Value, name string) reflect.Value {
	if found := v.FieldByName(name); found.IsValid() {
		return found
	}
	return d.spec.FieldByName(name)
}

// fieldsOf lists the fields of a struct to write: the fields of the layout if there is one, and newer fields that are set.
func fieldsOf(v reflect.Value) []string {
	known := strings.Fields(layout[v.Type().Name()])
	isAPI := v.Type().PkgPath() == "k8s.io/api/core/v1" || v.Type().PkgPath() == "k8s.io/apimachinery/pkg/apis/meta/v1"
	if len(known) == 0 || !isAPI {
		known = nil
		for i := range v.NumField() {
			known = append(known, v.Type().Field(i).Name)
		}
		return known
	}
	names := slices.Clone(known)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !slices.Contains(known, name) && !slices.Contains(movedOrMirrored, name) && !v.Field(i).IsZero() {
			names = append(names, name)
		}
	}
	return names
}

func (d *dump) items(v reflect.Value) {
	if v.IsNil() {
		d.print("<nil>")
		return
	}
	d.print("[")
	for i := range v.Len() {
		if i > 0 {
			d.print(" ")
		}
		d.value(v.Index(i), false)
	}
	d.print("]")
}

func (d *dump) entries(v reflect.Value) {
	if v.IsNil() {
		d.print("<nil>")
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	d.print("map[")
	for i, key := range keys {
		if i > 0 {
			d.print(" ")
		}
		d.value(key, false)
		d.print(":")
		d.value(v.MapIndex(key), false)
	}
	d.print("]")
}

// typeName returns the name of a type in the kubelet, where the API's internal types are in a package core.
func typeName(t reflect.Type) string {
	if t.Name() != "" {
		if t.PkgPath() == "k8s.io/api/core/v1" {
			return "core." + t.Name()
		}
		return t.String()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + typeName(t.Elem())
	case reflect.Slice:
		return "[]" + typeName(t.Elem())
	case reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	}
	return t.String()
}
