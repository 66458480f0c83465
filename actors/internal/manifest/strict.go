package manifest

import (
	"errors"
	"reflect"
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
		at := strings.TrimSuffix(prefix, ".")
		var faults []fault
		for _, m := range configfile.Misfits(text, into, at) {
			faults = append(faults, faultOf(field.TypeInvalid(field.NewPath(m.Field), m.Value, m.Wanted)))
		}
		if len(faults) == 0 {
			faults = []fault{{field: at, message: configfile.Plain(err)}}
		}
		return faults[:min(len(faults), maxProblems)]
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
