package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	featuregates "github.com/playlet-dev/playlet/config/gates"
)

// noEffectYet is the warning for a setting that is not the default and has no effect yet.
const noEffectYet = "without effect in this version of Playlet"

// Pending lists the fields of KubeletConfiguration, and with their dashes the flags that set none, which are without effect yet.
func Pending() []string {
	out := sets.List(pendingFields)
	for _, flag := range sets.List(pendingFlags) {
		out = append(out, "--"+flag)
	}
	return out
}

// EffectiveGates lists the feature gates that are obeyed, sorted.
func EffectiveGates() []string { return slices.Sorted(maps.Keys(effectiveGates)) }

// pending reports whether the flag has no effect yet.
func (r flagRow) pending() bool {
	return pendingFields.Has(r.field) || pendingFlags.Has(r.name)
}

// answer returns the warning for the use of the flag, if any.
func (r flagRow) answer() string {
	switch {
	case r.successor == "":
		return r.warning
	case r.field == "":
		return "deprecated: use " + r.successor
	case r.pending():
		return "deprecated: set " + r.successor
	default:
		return "deprecated: set " + r.successor + "; " + cmp.Or(r.warning, "the flag wins over the file")
	}
}

// pendingSettings returns one warning for each setting that is not the default and has no effect yet. It names the flag or
// else the field. plain is c without any settings; flags in answered have a warning already.
func (f *Flags) pendingSettings(fs *pflag.FlagSet, c, plain *KubeletConfiguration, answered []Warning) []Warning {
	var warnings []Warning
	changed := sets.New[string]()
	addChanged(changed, reflect.ValueOf(*c), reflect.ValueOf(*plain), "")
	fs.Visit(func(flag *pflag.Flag) {
		b := f.bound[flag.Name]
		if b == nil || !b.pending() || slices.ContainsFunc(answered, func(w Warning) bool { return w.Flag == "--"+flag.Name }) {
			return
		}
		said := []string{noEffectYet, b.answer()}
		if b.field == "" && flag.Value.String() == flag.DefValue || b.field != "" && !changed.Has(b.field) {
			said = said[1:]
		}
		changed.Delete(b.field)
		if message := strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), "; "); message != "" {
			warnings = append(warnings, Warning{Flag: "--" + b.name, Message: message})
		}
	})
	for _, path := range sets.List(changed) {
		if pendingFields.Has(path) {
			warnings = append(warnings, Warning{Flag: path, Message: noEffectYet})
		}
	}
	return append(warnings, pendingGates(c.FeatureGates)...)
}

func pendingGates(set map[string]bool) []Warning {
	var warnings []Warning
	for _, name := range slices.Sorted(maps.Keys(set)) {
		g, known := featuregates.Known()[name]
		if !known || set[name] == g.On || effectiveGates[name] {
			continue // not to be had, or not set, or in effect
		}
		message := noEffectYet
		if name == featuregates.AllAlpha || name == featuregates.AllBeta {
			message += fmt.Sprintf(", but on %s where they are of this stage",
				strings.Join(slices.Sorted(maps.Keys(effectiveGates)), ", "))
		}
		warnings = append(warnings, Warning{Flag: "featureGates." + name, Message: message})
	}
	return warnings
}

// addChanged adds the paths of the fields in which two values of one type of the configuration differ, sub-structures field by
// field. Empty maps and lists are as good as none.
func addChanged(changed sets.Set[string], a, b reflect.Value, above string) {
	for i := range a.NumField() {
		field, is, was := a.Type().Field(i), a.Field(i), b.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		_, whole := is.Interface().(json.Marshaler) // a duration, a quantity
		switch path := strings.TrimPrefix(above+"."+name, "."); {
		case field.Type == reflect.TypeFor[metav1.TypeMeta]():
		case name == "": // inlined
			addChanged(changed, is, was, above)
		case field.Type.Kind() == reflect.Struct && !whole:
			addChanged(changed, is, was, path)
		case !apiequality.Semantic.DeepEqual(is.Interface(), was.Interface()):
			changed.Insert(path)
		}
	}
}
