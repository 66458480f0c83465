package podspec

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// notYet is the message about a refused field.
const notYet = "not supported yet by Playlet"

// Unsupported names every field of a defaulted pod's spec that differs from its default and is not implemented yet, so that no
// field is dropped silently. The table in fields.go lists the honoured fields; all others are refused.
func Unsupported(pod *v1.Pod) field.ErrorList {
	w := &walker{}
	w.walk(reflect.ValueOf(&pod.Spec).Elem(), field.NewPath("spec"), "")
	return w.errs
}

// HasClaims reports whether a pod may use ResourceClaims (KEP-4381): its own, or one for its extended resources (KEP-5004).
func HasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// others maps the honoured value of a field with two values to the refused one.
var others = map[string]string{"Recursive": "MountOption"}

// Refused lists the fields of a pod's spec that are not implemented yet, as containers[].volumeDevices, sorted. A field with two
// values, one of them refused, is listed with that one. The fields of init containers and ephemeral ones
// equal those of containers, and are omitted.
func Refused() []string {
	var out []string
	for _, r := range fields {
		for _, path := range spellings(r.path) {
			switch {
			case strings.HasPrefix(path, "initContainers[]"):
			case r.verdict == refused:
				out = append(out, path)
			case len(r.only) == 1 && others[r.only[0]] != "":
				out = append(out, path+": "+others[r.only[0]])
			}
		}
	}
	slices.Sort(out)
	return out
}

// rules is the table by path, with braces expanded.
var rules = func() map[string]rule {
	byPath := map[string]rule{}
	for _, r := range fields {
		for _, path := range spellings(r.path) {
			byPath[path] = r
			if rest, ok := strings.CutPrefix(path, "containers[]"); ok { // an ephemeral container has the same fields
				byPath["ephemeralContainers[]"+rest] = r
			}
		}
	}
	return byPath
}()

// spellings expands the braces of a path.
func spellings(path string) []string {
	before, rest, found := strings.Cut(path, "{")
	if !found {
		return []string{path}
	}
	words, after, _ := strings.Cut(rest, "}")
	var paths []string
	for word := range strings.SplitSeq(words, ",") {
		paths = append(paths, spellings(before+word+after)...)
	}
	return paths
}

// walker visits every field that is set. pattern is the path in the form of the table.
type walker struct{ checker }

func (w *walker) walk(value reflect.Value, at *field.Path, pattern string) {
	if isUnset(value) {
		return
	}
	if r, ok := rules[pattern]; ok {
		w.judge(r, value, at)
		return
	}
	switch {
	case value.Kind() == reflect.Pointer:
		w.walk(value.Elem(), at, pattern)
	case isLeaf(value.Type()):
		w.forbidden(at, notYet)
	case value.Kind() == reflect.Slice:
		for i := range value.Len() {
			w.walk(value.Index(i), at.Index(i), pattern+"[]")
		}
	default:
		for i := range value.NumField() {
			w.walkField(value, i, at, pattern)
		}
	}
}

func (w *walker) walkField(value reflect.Value, i int, at *field.Path, pattern string) {
	name := jsonName(value.Type().Field(i))
	switch {
	case name == "":
		w.walk(value.Field(i), at, pattern)
	case pattern == "":
		w.walk(value.Field(i), at.Child(name), name)
	default:
		w.walk(value.Field(i), at.Child(name), pattern+"."+name)
	}
}

func (w *walker) judge(r rule, value reflect.Value, at *field.Path) {
	switch {
	case r.verdict == refused:
		w.forbidden(at, notYet)
	case r.only == nil:
	case value.Kind() == reflect.Map:
		keys := make([]string, 0, value.Len())
		for _, key := range value.MapKeys() {
			keys = append(keys, key.String())
		}
		slices.Sort(keys)
		for _, key := range keys {
			if !matchesAny(r.only, key) {
				w.forbidden(at.Key(key), notYet)
			}
		}
	default:
		if !matchesAny(r.only, fmt.Sprint(reflect.Indirect(value))) {
			w.forbidden(at, notYet+", except "+strings.Join(r.only, ", "))
		}
	}
}

func matchesAny(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, err := path.Match(pattern, value)
		return err == nil && matches
	})
}

// isUnset reports whether a value is missing in a manifest. A pointer to a zero value is not missing.
func isUnset(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Slice, reflect.Map:
		return value.Len() == 0
	default:
		return value.IsZero()
	}
}

// isLeaf reports whether a type is a single value of a manifest, without fields of its own.
func isLeaf(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]():
		return true
	}
	return t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer
}
