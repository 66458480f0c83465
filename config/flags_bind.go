package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// place says where in the target the value of a flag lives: a pointer to it, or a pflag.Value.
type place func(*target) any

// register adds a flag that sets the value at the place. Its default, shown in the help text, is what that holds now.
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
	case *map[string]string: // the first use of the flag drops what was there before
		fs.Var(cliflag.NewMapStringString(at), name, usage)
	case *map[string][]string:
		fs.Var(cliflag.NewColonSeparatedMultimapStringString(at), name, usage)
	case *[]corev1.Taint:
		fs.Var(&taintsValue{at}, name, usage)
	case *[]kubeletconfig.MemoryReservation:
		fs.Var(&reservedMemoryValue{to: at}, name, usage)
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

// fieldSyntax are the fields whose flag has another syntax than others of the same type.
var fieldSyntax = map[string]func(at any) pflag.Value{
	"evictionHard":            thresholds,
	"evictionSoft":            thresholds,
	"address":                 func(at any) pflag.Value { return addressValue{at.(*string)} },
	"healthzBindAddress":      func(at any) pflag.Value { return addressValue{at.(*string)} },
	"cpuManagerPolicyOptions": func(at any) pflag.Value { return cliflag.NewMapStringStringNoSplit(at.(*map[string]string)) },
}

// addressValue is an IP address. An empty one leaves what was there, as a unit whose variable is empty gives one; whether another
// is an address is seen with that of the file.
type addressValue struct{ at *string }

func (a addressValue) String() string { return *a.at }
func (addressValue) Type() string     { return "string" }
func (a addressValue) Set(s string) error {
	*a.at = cmp.Or(s, *a.at)
	return nil
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

// fieldNamed is a field by its name in the file, also of what is embedded; invalid where there is none.
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

// taintsValue is a comma-separated list of key[=value]:effect. A later use replaces an earlier one.
type taintsValue struct{ to *[]corev1.Taint }

func (v *taintsValue) String() string {
	if v.to == nil {
		return ""
	}
	said := make([]string, 0, len(*v.to))
	for _, t := range *v.to {
		said = append(said, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
	}
	return strings.Join(said, ",")
}

func (v *taintsValue) Type() string { return "taints" }

func (v *taintsValue) Set(s string) error {
	var taints []corev1.Taint
	for one := range strings.SplitSeq(s, ",") {
		if one == "" {
			continue
		}
		taint, err := parseTaint(one)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(taints, func(other corev1.Taint) bool { return other.MatchTaint(taint) }) {
			return fmt.Errorf("taint %q: key and effect appear twice", one)
		}
		taints = append(taints, *taint)
	}
	*v.to = taints
	return nil
}

func parseTaint(s string) (*corev1.Taint, error) {
	pair, effect, found := strings.Cut(s, ":")
	if !found || strings.Contains(effect, ":") {
		return nil, fmt.Errorf("taint %q is not of the form key[=value]:effect", s)
	}
	key, value, _ := strings.Cut(pair, "=")
	taint := &corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	if err := checkTaint(*taint); err != nil {
		return nil, fmt.Errorf("taint %q: %w", s, err)
	}
	if effect == "" {
		return nil, fmt.Errorf("taint %q has no effect", s)
	}
	return taint, nil
}

// checkTaint says what is wrong with a taint that a node wants to register with.
func checkTaint(t corev1.Taint) error {
	if errs := validation.IsQualifiedName(t.Key); len(errs) > 0 {
		return fmt.Errorf("key %q: %s", t.Key, strings.Join(errs, ", "))
	}
	if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
		return fmt.Errorf("value %q: %s", t.Value, strings.Join(errs, ", "))
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return nil
	}
	return fmt.Errorf("effect %q is none of NoSchedule, PreferNoSchedule, NoExecute", t.Effect)
}

// reservedMemoryValue is NODE:type=quantity[,type=quantity…], several of them separated by semicolons or given by
// repeating the flag. The first use drops what was there before.
type reservedMemoryValue struct {
	to      *[]kubeletconfig.MemoryReservation
	started bool
}

func (v *reservedMemoryValue) String() string {
	if v.to == nil {
		return ""
	}
	said := make([]string, 0, len(*v.to))
	for _, r := range *v.to {
		limits := make([]string, 0, len(r.Limits))
		for name, q := range r.Limits {
			limits = append(limits, fmt.Sprintf("%s=%s", name, q.String()))
		}
		slices.Sort(limits)
		said = append(said, fmt.Sprintf("%d:%s", r.NumaNode, strings.Join(limits, ",")))
	}
	return strings.Join(said, ";")
}

func (v *reservedMemoryValue) Type() string { return "reserved-memory" }

func (v *reservedMemoryValue) Set(s string) error {
	if s == "" {
		return nil
	}
	var parsed []kubeletconfig.MemoryReservation
	for one := range strings.SplitSeq(s, ";") {
		r, err := parseReservation(one)
		if err != nil {
			return err
		}
		parsed = append(parsed, *r)
	}
	if !v.started {
		*v.to, v.started = nil, true
	}
	*v.to = append(*v.to, parsed...)
	return nil
}

func parseReservation(s string) (*kubeletconfig.MemoryReservation, error) {
	node, limits, found := strings.Cut(s, ":")
	number, err := strconv.ParseInt(node, 10, 32)
	if !found || err != nil {
		return nil, fmt.Errorf("%q is not of the form NUMA-node:type=quantity", s)
	}
	r := &kubeletconfig.MemoryReservation{NumaNode: int32(number), Limits: corev1.ResourceList{}}
	for pair := range strings.SplitSeq(limits, ",") {
		name, amount, found := strings.Cut(pair, "=")
		if !found {
			return nil, fmt.Errorf("%q is not of the form type=quantity", pair)
		}
		if !reservableMemory(corev1.ResourceName(name)) {
			return nil, fmt.Errorf("%q is neither memory nor hugepages-SIZE", name)
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return nil, fmt.Errorf("%q is not a quantity", amount)
		}
		r.Limits[corev1.ResourceName(name)] = q
	}
	return r, nil
}

// reservableMemory says whether the memory manager knows this kind of memory.
func reservableMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
