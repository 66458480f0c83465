package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Mismatch is a value that does not fit the field that it is given to.
type Mismatch struct {
	// Field is its path, as spec.containers[0].image.
	Field string
	Value any
	// Wanted describes the expected value.
	Wanted string
}

// Misfits returns the values of asJSON that do not fit the type of into, with their paths below at. Decoders stop at the
// first misfit, and name its field badly or, for a duration or quantity, not at all. Misfits therefore searches for the
// innermost values that fail to decode alone.
func Misfits(asJSON []byte, into any, at string) []Mismatch {
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil
	}
	f := &typeChecker{}
	f.fit(reflect.TypeOf(into).Elem(), value, at)
	return f.mismatches
}

// maxMisfits is how many are looked for: a machine wrote a file that has more.
const maxMisfits = 20

type typeChecker struct{ mismatches []Mismatch }

// fit looks for the innermost values that cannot be decoded alone.
func (f *typeChecker) fit(t reflect.Type, value any, at string) {
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface())
	}
	if err == nil || len(f.mismatches) == maxMisfits {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	before := len(f.mismatches)
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
	if len(f.mismatches) == before {
		f.mismatches = append(f.mismatches, Mismatch{at, value, wanted(t, value, err)})
	}
}

func (f *typeChecker) fitMap(t reflect.Type, value map[string]any, at string) {
	switch t.Kind() {
	case reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			f.fit(t.Elem(), value[key], at+"["+key+"]")
		}
	case reflect.Struct:
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" && field.Anonymous {
				f.fitMap(field.Type, value, at)
			} else if given, ok := value[name]; ok {
				f.fit(field.Type, given, strings.TrimPrefix(at+"."+name, "."))
			}
		}
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// wanted describes the values that decode into a type, for a value that does not.
func wanted(t reflect.Type, value any, err error) string {
	if t == reflect.TypeFor[metav1.Duration]() {
		return "it must be a duration, such as 90s, 10m or 1h30m"
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
		if !ok {
			return Plain(err)
		}
		t = wrong.Type
	}
	switch t.Kind() {
	case reflect.Struct:
		return "must be a map of fields"
	case reflect.Slice:
		if _, isText := value.(string); isText && t.Elem().Kind() == reflect.Uint8 {
			return Plain(err)
		}
		return "must be a list"
	case reflect.Map:
		return "must be a map"
	case reflect.String:
		return "must be text; put it in quotes"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Float32, reflect.Float64:
		return "must be a number"
	}
	if number, ok := value.(json.Number); ok {
		if zero := reflect.Zero(t); zero.CanUint() && strings.HasPrefix(number.String(), "-") {
			return "must not be negative"
		}
		if _, err := number.Int64(); err == nil {
			return fmt.Sprintf("must be between %d and %d", -1<<(t.Bits()-1), 1<<(t.Bits()-1)-1)
		}
	}
	return "must be a whole number"
}

// Plain is an error's text without the words of Go's library, on one line.
func Plain(err error) string {
	text := Folded(err.Error())
	if wrong, ok := errors.AsType[*strconv.NumError](err); ok {
		switch {
		case wrong.Func == "ParseBool":
			return "it must be true or false"
		case errors.Is(err, strconv.ErrRange):
			return "it is too large a number"
		default:
			return "it must be a number"
		}
	}
	if strings.HasPrefix(text, "time: ") {
		return "it must be a duration, such as 90s, 10m or 1h30m"
	}
	if want, ok := strings.CutPrefix(text, "malformed pair, expect string"); ok { // of Kubernetes' flags
		return "it must be pairs, each as KEY" + want[:min(1, len(want))] + "VALUE"
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "json: "), "cannot unmarshal ")
}

// Folded joins the lines of a parser's message with single spaces.
func Folded(s string) string { return strings.Join(strings.Fields(s), " ") }
