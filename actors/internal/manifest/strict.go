package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/playlet-dev/playlet/config"
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
		if meant := config.MeantField(reflect.TypeOf(into), at.FieldPath()); meant != "" {
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

func (f *fitter) wrong(at string, value any, want string) {
	if len(f.faults) == maxProblems {
		return
	}
	err := field.TypeInvalid(field.NewPath(at), value, want)
	f.faults = append(f.faults, faultOf(err))
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (f *fitter) fit(t reflect.Type, value any, at string) {
	if value == nil {
		return
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		f.fitItself(t, value, at)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		f.fit(t.Elem(), value, at)
	case reflect.Struct:
		f.fitStruct(t, value, at)
	case reflect.Slice:
		f.fitList(t, value, at)
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			f.wrong(at, value, "must be a map")
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			f.fit(t.Elem(), object[key], at+"["+key+"]")
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			f.wrong(at, value, "must be text; put it in quotes")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			f.wrong(at, value, "must be true or false")
		}
	case reflect.Int32:
		f.fitNumber(value, at, math.MinInt32, math.MaxInt32)
	case reflect.Int64, reflect.Int:
		f.fitNumber(value, at, math.MinInt64, math.MaxInt64)
	}
}

// fitItself asks a type that reads its own text, such as a quantity.
func (f *fitter) fitItself(t reflect.Type, value any, at string) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		f.wrong(at, value, plain(err))
	}
}

func (f *fitter) fitStruct(t reflect.Type, value any, at string) {
	object, ok := value.(map[string]any)
	if !ok {
		f.wrong(at, value, "must be a map of fields")
		return
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case name == "" && t.Field(i).Anonymous:
			f.fit(t.Field(i).Type, value, at)
		case at == "":
			f.fit(t.Field(i).Type, object[name], name)
		default:
			f.fit(t.Field(i).Type, object[name], at+"."+name)
		}
	}
}

func (f *fitter) fitList(t reflect.Type, value any, at string) {
	if _, ok := value.(string); ok && t.Elem().Kind() == reflect.Uint8 {
		f.fitItself(t, value, at)
		return
	}
	list, ok := value.([]any)
	if !ok {
		f.wrong(at, value, "must be a list")
		return
	}
	for i, item := range list {
		f.fit(t.Elem(), item, fmt.Sprintf("%s[%d]", at, i))
	}
}

func (f *fitter) fitNumber(value any, at string, low, high int64) {
	number, ok := value.(json.Number)
	if !ok {
		f.wrong(at, value, "must be a whole number")
		return
	}
	n, err := number.Int64()
	switch {
	case err != nil:
		f.wrong(at, value, "must be a whole number")
	case n < low || n > high:
		f.wrong(at, value, fmt.Sprintf("must be between %d and %d", low, high))
	}
}
