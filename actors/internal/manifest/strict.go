package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/playlet-dev/playlet/config/configfile"
)

// unmarshal decodes text into a pointer to a struct as the API server decodes what kubectl sends it: names of fields
// in their exact case, none unknown, none twice. Faults name fields by their path behind prefix.
func unmarshal(text []byte, into any, prefix string) []fault {
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		if faults := misfits(text, into, prefix); len(faults) > 0 {
			return faults
		}
		return []fault{{field: strings.TrimSuffix(prefix, "."), message: plain(err)}}
	}
	var faults []fault
	for _, err := range strict[:min(len(strict), maxProblems)] {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			faults = append(faults, fault{message: err.Error()})
			continue
		}
		what := "is not a field of the API here; names are case-sensitive"
		if meant := configfile.MeantField(reflect.TypeOf(into), at.FieldPath()); meant != "" {
			what = "is not a field of the API here; did you mean " + meant[strings.LastIndex(meant, ".")+1:] + "?"
		}
		if strings.HasPrefix(err.Error(), "duplicate") {
			what = "is there twice"
		}
		faults = append(faults, fault{field: prefix + at.FieldPath(), message: what})
	}
	return faults
}

// misfits finds the values of text that do not fit the fields they are given to. The decoder stops at the first one
// and tells its path without indices.
func misfits(text []byte, into any, prefix string) []fault {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil
	}
	f := &fitter{}
	f.fit(reflect.TypeOf(into).Elem(), value, strings.TrimSuffix(prefix, "."))
	return f.faults
}

type fitter struct{ faults []fault }

// fit looks for the innermost values that cannot be decoded alone.
func (f *fitter) fit(t reflect.Type, value any, at string) {
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface())
	}
	if err == nil || len(f.faults) == maxProblems {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	before := len(f.faults)
	switch value := value.(type) {
	case map[string]any:
		f.fitMap(t, value, at)
	case []any:
		for i, item := range value {
			if t.Kind() == reflect.Slice {
				f.fit(t.Elem(), item, fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
	if len(f.faults) == before {
		f.faults = append(f.faults, faultOf(field.TypeInvalid(field.NewPath(at), value, wanted(t, value, err))))
	}
}

func (f *fitter) fitMap(t reflect.Type, value map[string]any, at string) {
	switch t.Kind() {
	case reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			f.fit(t.Elem(), value[key], at+"["+key+"]")
		}
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			switch {
			case name == "" && t.Field(i).Anonymous:
				f.fitMap(t.Field(i).Type, value, at)
			case at == "":
				f.fit(t.Field(i).Type, value[name], name)
			default:
				f.fit(t.Field(i).Type, value[name], at+"."+name)
			}
		}
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// wanted says what a value of this type has to be, which could not be decoded.
func wanted(t reflect.Type, value any, err error) string {
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return plain(err)
	}
	switch t.Kind() {
	case reflect.Struct:
		return "must be a map of fields"
	case reflect.Slice:
		if _, isText := value.(string); isText && t.Elem().Kind() == reflect.Uint8 {
			return plain(err)
		}
		return "must be a list"
	case reflect.Map:
		return "must be a map"
	case reflect.String:
		return "must be text; put it in quotes"
	case reflect.Bool:
		return "must be true or false"
	}
	if number, ok := value.(json.Number); ok {
		if _, err := number.Int64(); err == nil {
			return fmt.Sprintf("must be between %d and %d", -1<<(t.Bits()-1), 1<<(t.Bits()-1)-1)
		}
	}
	return "must be a whole number"
}
