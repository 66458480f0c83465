package manifest

import (
	"errors"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/playlet-dev/playlet/config/configfile"
)

// unmarshal decodes text into a pointer to a struct as the API server does: names of fields count in their exact case.
// passedOver are the unknown and the repeated fields. Faults name fields by their path behind prefix.
func unmarshal(text []byte, into any, prefix string) (faults, passedOver []fault) {
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		at := strings.TrimSuffix(prefix, ".")
		for _, m := range configfile.Misfits(text, into, at) {
			faults = append(faults, faultOf(field.TypeInvalid(field.NewPath(m.Field), m.Value, m.Wanted)))
		}
		if len(faults) == 0 {
			faults = []fault{{field: at, message: configfile.Plain(err)}}
		}
		return faults[:min(len(faults), maxProblems)], nil
	}
	for _, err := range strict[:min(len(strict), maxProblems)] {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			passedOver = append(passedOver, fault{message: err.Error()})
			continue
		}
		what := "is not a field of the API here"
		if meant := configfile.MeantField(reflect.TypeOf(into), at.FieldPath()); meant != "" {
			what = "is not a field of the API here; did you mean " + meant[strings.LastIndex(meant, ".")+1:] + "?"
		}
		if advice := configfile.Misplaced(reflect.TypeOf(into), at.FieldPath(), prefix); advice != "" {
			what = "is not a field of the API here: " + advice
		}
		if strings.HasPrefix(err.Error(), "duplicate") {
			what = "is there twice"
		}
		passedOver = append(passedOver, fault{field: prefix + at.FieldPath(), message: what})
	}
	return nil, passedOver
}
