package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/config/flagvalue"
)

// place returns a flag's value within a target: a pointer to it, or a pflag.Value.
type place func(*target) any

// register adds a flag for the value at the place. The present value is its default in the help text.
func register(fs *pflag.FlagSet, at any, name, usage string) {
	switch at := at.(type) {
	case *bool:
		fs.BoolVar(at, name, *at, usage)
	case *int32:
		fs.Int32Var(at, name, *at, usage)
	case *int64:
		fs.Int64Var(at, name, *at, usage)
	case *time.Duration:
		fs.DurationVar(at, name, *at, usage)
	case *string:
		fs.StringVar(at, name, *at, usage)
	case *[]string:
		fs.StringSliceVar(at, name, *at, usage)
	case *map[string]string: // the first use of the flag replaces the earlier entries
		fs.Var(cliflag.NewMapStringString(at), name, usage)
	case *map[string][]string:
		fs.Var(cliflag.NewColonSeparatedMultimapStringString(at), name, usage)
	case *[]corev1.Taint:
		fs.Var(&flagvalue.Taints{To: at}, name, usage)
	case *logsapi.VerbosityLevel:
		fs.Var(logsapi.VerbosityLevelPflag(at), name, usage)
	case *logsapi.VModuleConfiguration:
		fs.Var(logsapi.VModuleConfigurationPflag(at), name, usage)
	case pflag.Value:
		fs.Var(at, name, usage)
	default:
		panic(fmt.Sprintf("--%s: no flag sets a %T", name, at)) // of a table; every test sees it
	}
}

// thresholds takes signal<quantity pairs.
func thresholds(at any) pflag.Value {
	return cliflag.NewLangleSeparatedMapStringString(at.(*map[string]string))
}

// fieldSyntax lists the fields whose flag syntax differs from other fields of the same type.
var fieldSyntax = map[string]func(at any) pflag.Value{
	"evictionHard":       thresholds,
	"evictionSoft":       thresholds,
	"address":            func(at any) pflag.Value { return flagvalue.Address{To: at.(*string)} },
	"healthzBindAddress": func(at any) pflag.Value { return flagvalue.Address{To: at.(*string)} },
	"reservedMemory": func(at any) pflag.Value {
		return &flagvalue.Reservations{To: at.(*[]kubeletconfig.MemoryReservation)}
	},
	"cpuManagerPolicyOptions": func(at any) pflag.Value { return cliflag.NewMapStringStringNoSplit(at.(*map[string]string)) },
}

// fieldOf is the place of a field of KubeletConfiguration, named by its path in the file.
func fieldOf(path string) place {
	return func(t *target) any {
		at := fieldAt(t.kubelet, path)
		if syntax := fieldSyntax[path]; syntax != nil {
			return syntax(at)
		}
		return at
	}
}

// fieldAt points to the field's value, behind pointers and inside durations. Types of strings are strings.
func fieldAt(c *KubeletConfiguration, path string) any {
	v := reflect.ValueOf(c)
	for name := range strings.SplitSeq(path, ".") {
		if v = reflect.Indirect(fieldNamed(reflect.Indirect(v), name)); !v.IsValid() {
			panic("the configuration has no field " + path) // of a table; every test sees it
		}
	}
	switch at := v.Addr().Interface().(type) {
	case *metav1.Duration:
		return &at.Duration
	case *logsapi.TimeOrMetaDuration:
		return &at.Duration.Duration
	}
	if v.Kind() == reflect.String {
		return v.Addr().Convert(reflect.TypeFor[*string]()).Interface()
	}
	return v.Addr().Interface()
}

// fieldNamed returns a field by its name in the file, also from embedded structs. It returns the zero Value if there is none.
func fieldNamed(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
		if !field.Anonymous {
			continue
		}
		if at := fieldNamed(v.Field(i), name); at.IsValid() {
			return at
		}
	}
	return reflect.Value{}
}

// nowhere accepts any text and drops it; nowhereBool is for flags that may stand without a value.
func nowhere(*target) any     { return new(string) }
func nowhereBool(*target) any { return new(bool) }
