package podspec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// leaves calls visit with the path of every single value of a type.
func leaves(t reflect.Type, path string, visit func(path string)) {
	switch {
	case isLeaf(t):
		visit(path)
	case t.Kind() == reflect.Pointer:
		leaves(t.Elem(), path, visit)
	case t.Kind() == reflect.Slice:
		leaves(t.Elem(), path+"[]", visit)
	default:
		for i := range t.NumField() {
			name := jsonName(t.Field(i))
			if name != "" && path != "" {
				name = "." + name
			}
			leaves(t.Field(i).Type, path+name, visit)
		}
	}
}

// linesFor returns the paths of the table that cover a leaf: its own, and those of its parents.
func linesFor(leaf string) []string {
	var found []string
	for path := range rules {
		if leaf == path || strings.HasPrefix(leaf, path+".") || strings.HasPrefix(leaf, path+"[]") {
			found = append(found, path)
		}
	}
	return found
}

// TestEveryFieldHasItsLine fails if the API has gained a field: add a line to fields.go.
func TestEveryFieldHasItsLine(t *testing.T) {
	used := map[string]bool{}
	leaves(reflect.TypeFor[v1.PodSpec](), "", func(leaf string) {
		lines := linesFor(leaf)
		if len(lines) != 1 {
			t.Errorf("spec.%s has %d lines in the table, wants one: %v", leaf, len(lines), lines)
		}
		for _, line := range lines {
			used[line] = true
			if rules[line].verdict == honoured && line != leaf {
				t.Errorf("the line %s is honoured for all below it, unseen: spell out spec.%s", line, leaf)
			}
		}
	})
	for path := range rules {
		if !used[path] {
			t.Errorf("the line %s speaks of no field", path)
		}
	}
}

func TestNoLineIsWrittenTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range fields {
		for _, path := range spellings(r.path) {
			if seen[path] {
				t.Errorf("%s is there twice", path)
			}
			seen[path] = true
		}
		if !slices.Contains([]verdict{honoured, ignorable, refused}, r.verdict) {
			t.Errorf("%s has verdict %q", r.path, r.verdict)
		}
		if r.verdict == refused && r.only != nil {
			t.Errorf("%s is refused whatever it says, so its list says nothing", r.path)
		}
	}
}

// TestEveryLineIsActedUpon sets each field of the table alone and compares the refusals.
func TestEveryLineIsActedUpon(t *testing.T) {
	for path, r := range rules {
		if r.only == nil {
			checkLine(t, path, "x", r.verdict == refused)
			continue
		}
		for _, value := range r.only {
			checkLine(t, path, strings.ReplaceAll(value, "*", "2Mi"), false)
		}
		checkLine(t, path, "other", true)
	}
}

func checkLine(t *testing.T, path, text string, wantRefused bool) {
	t.Helper()
	pod := &v1.Pod{}
	set(reflect.ValueOf(&pod.Spec).Elem(), path, text)
	errs := Unsupported(pod)
	if !wantRefused {
		if len(errs) > 0 {
			t.Errorf("%s = %s: refused: %v", path, text, errs)
		}
		return
	}
	want := "spec." + strings.ReplaceAll(path, "[]", "[0]")
	if len(errs) != 1 || strings.TrimSuffix(errs[0].Field, "[other]") != want || !strings.Contains(errs[0].Detail, notYet) {
		t.Errorf("%s = %s: want it refused at %s, got %v", path, text, want, errs)
	}
}

// set sets the field at path in a spec to a value other than its default: to text if it is a string.
func set(value reflect.Value, path, text string) {
	switch {
	case value.Kind() == reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		if path != "" || isLeaf(value.Type().Elem()) {
			set(value.Elem(), path, text)
		}
	case strings.HasPrefix(path, "[]") || (path == "" && value.Kind() == reflect.Slice):
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		set(value.Index(0), strings.TrimPrefix(path, "[]"), text)
	case path != "":
		path = strings.TrimPrefix(path, ".")
		name := path
		if end := strings.IndexAny(path, ".["); end >= 0 {
			name = path[:end]
		}
		set(fieldNamed(value, name), path[len(name):], text)
	default:
		setLeaf(value, text)
	}
}

func fieldNamed(value reflect.Value, name string) reflect.Value {
	for i := range value.NumField() {
		switch jsonName(value.Type().Field(i)) {
		case name:
			return value.Field(i)
		case "":
			if found := fieldNamed(value.Field(i), name); found.IsValid() {
				return found
			}
		}
	}
	return reflect.Value{}
}

func setLeaf(value reflect.Value, text string) {
	switch value.Kind() {
	case reflect.String:
		value.SetString(text)
	case reflect.Bool:
		value.SetBool(text == "x" || text == "true")
	case reflect.Int32, reflect.Int64:
		value.SetInt(1)
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		key := reflect.ValueOf(text).Convert(value.Type().Key())
		value.SetMapIndex(key, reflect.New(value.Type().Elem()).Elem())
	default:
		switch value.Interface().(type) {
		case resource.Quantity:
			value.Set(reflect.ValueOf(resource.MustParse("1")))
		case intstr.IntOrString:
			value.Set(reflect.ValueOf(intstr.FromString(text)))
		}
	}
}
