package supervisors

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Ready marks a ready pod in the digest of its status.
const Ready = "ready"

// safe lists the fields of messages that contain names or reasons; no other text gets into a digest. counted lists the fields
// of which a digest gives the length.
var (
	safe = []string{
		"name", "namespace", "container", "volume", "service", "phase", "code", "verdict", "change", "state", "stage", "kind",
		"verb", "key", "image", "reason", "source", "attempt", "generation", "exitcode", "tries", "policy", "type",
	}
	counted = []string{"pods", "containers", "problems", "uids", "failing", "facts"}
	nested  = []string{"key", "fact", "facts", "reason", "ending", "fail", "pod", "waiting", "failed", "nonetwork"}
)

const (
	digestValue = 64  // bytes of one value at most
	digestBytes = 160 // of all
)

// part is one field of a message that goes into its digest.
type part struct {
	path  []int
	label string // empty where the text is clear without it
	text  func(v reflect.Value) string
}

var plans sync.Map // reflect.Type -> []part

// digest describes the subject and the content of a message in a few words.
func digest(msg any) string {
	if s, is := msg.(messages.Started); is && s.Desired != nil {
		return strings.TrimSpace(typeName(s.Desired) + " " + digest(s.Desired))
	}
	t := reflect.TypeOf(msg)
	if t == nil || t.Kind() != reflect.Struct {
		return ""
	}
	plan, known := plans.Load(t)
	if !known {
		plan, _ = plans.LoadOrStore(t, partsOf(t, nil))
	}
	parts, whole := plan.([]part), reflect.ValueOf(msg)
	var room [2 * digestBytes]byte
	b := room[:0]
	for i := range parts {
		v, ok := whole, true
		for _, f := range parts[i].path {
			if v.Kind() == reflect.Pointer {
				if ok = !v.IsNil(); !ok {
					break
				}
				v = v.Elem()
			}
			v = v.Field(f)
		}
		if !ok || v.IsZero() {
			continue
		}
		if b = word(b, parts[i].label, parts[i].text(v)); len(b) >= digestBytes {
			b = b[:digestBytes]
			break
		}
	}
	return strings.ToValidUTF8(string(b), "")
}

// partsOf lists the parts of a struct, and of those in it that are about the same thing.
func partsOf(t reflect.Type, path []int) (out []part) {
	for i := range t.NumField() {
		f := t.Field(i)
		lower := strings.ToLower(f.Name)
		p := part{path: append(slices.Clone(path), i), label: strings.ToLower(f.Name[:1]) + f.Name[1:]}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch inner {
		case reflect.TypeFor[v1.Pod]():
			p.text = podText
		case reflect.TypeFor[v1.PodStatus]():
			if lower == "status" {
				p.label, p.text = "", statusText
			}
		case reflect.TypeFor[v1.Container]():
			p.text = func(v reflect.Value) string { return reflect.Indirect(v).FieldByName("Name").String() }
		default:
			if inner.Kind() == reflect.Struct && len(path) == 0 && slices.Contains(nested, lower) &&
				inner.PkgPath() == reflect.TypeFor[messages.Reason]().PkgPath() {
				out = append(out, partsOf(inner, p.path)...)
				continue
			}
			p.ofKind(f.Type, lower)
		}
		if p.text != nil {
			out = append(out, p)
		}
	}
	return out
}

// ofKind sets the part's text by the type and name of a field. It stays nil for a field with arbitrary text.
func (p *part) ofKind(t reflect.Type, name string) {
	always := func(text string) {
		p.label, p.text = "", func(reflect.Value) string { return text }
	}
	switch t.Kind() {
	case reflect.Bool:
		always(p.label)
	case reflect.Slice, reflect.Map:
		if slices.Contains(counted, name) {
			p.text = func(v reflect.Value) string { return strconv.Itoa(v.Len()) }
		}
	case reflect.Interface:
		if t == reflect.TypeFor[error]() {
			always("failed")
		}
	case reflect.String:
		if slices.Contains(safe, name) {
			p.text = reflect.Value.String
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if slices.Contains(safe, name) {
			p.text = func(v reflect.Value) string { return strconv.FormatInt(v.Int(), 10) }
		}
	case reflect.Uint32, reflect.Uint64:
		if slices.Contains(safe, name) {
			p.text = func(v reflect.Value) string { return strconv.FormatUint(v.Uint(), 10) }
		}
	default:
	}
}

func podText(v reflect.Value) string {
	meta := reflect.Indirect(v).FieldByName("ObjectMeta")
	return meta.FieldByName("Namespace").String() + "/" + meta.FieldByName("Name").String()
}

func statusText(v reflect.Value) string {
	s := reflect.Indirect(v)
	phase, conditions := s.FieldByName("Phase").String(), s.FieldByName("Conditions")
	for i := range conditions.Len() {
		c := conditions.Index(i)
		if c.FieldByName("Type").String() == string(v1.PodReady) && c.FieldByName("Status").String() == string(v1.ConditionTrue) {
			return phase + " " + Ready
		}
	}
	return phase
}

// word adds "label=text", or the text alone. Of two values of one label, as of a thing and of a fact about it, the first stays.
func word(b []byte, label, text string) []byte {
	for i := 0; label != "" && i+len(label) < len(b); i++ {
		if (i == 0 || b[i-1] == ' ') && b[i+len(label)] == '=' && string(b[i:i+len(label)]) == label {
			return b
		}
	}
	if len(b) > 0 {
		b = append(b, ' ')
	}
	if label != "" {
		b = append(append(b, label...), '=')
	}
	return append(b, text[:min(len(text), digestValue)]...)
}
