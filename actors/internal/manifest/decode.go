package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// MaxBytes is how large a manifest may be; the kubelet reads as much of one.
const MaxBytes = 10 << 20

// Document is one pod of a manifest as its author wrote it, or the problems that prevent it.
type Document struct {
	// Pod is nil where there are problems.
	Pod *v1.Pod
	// Problems are faults of form: syntax, unknown and repeated fields, values of wrong types.
	// Their Pod is empty.
	Problems []Problem
	// Warnings are the unknown and the repeated fields, which a kubelet ignores.
	Warnings []Problem
	// Note lists the fields that are used of an object that is not a Pod; see LoadSubmission.
	Note string

	path      string
	first     int    // line of the document's text, 1 is the first of the file
	prefix    string // items[3] for a pod of a list, with a dot behind it
	outer     string // the prefix of the object that has the pod's template, and its name
	submitted bool   // objects with a template are taken, too
	namespace string // of the pod, as far as it could be read; so is name
	name      string
	places    *locator
}

// Line returns the line of a field of the pod, such as spec.containers[0].image, or of its innermost parent that is there.
func (d *Document) Line(field string) int {
	return d.first - 1 + d.places.find(d.pathOf(field))
}

// pathOf returns the path in the document of a field of the pod. A pod made of a template has the name of the whole object.
func (d *Document) pathOf(field string) string {
	if d.Note != "" && (field == "metadata.name" || field == "metadata.namespace") {
		return d.outer + field
	}
	return d.prefix + field
}

func (d *Document) problem(f fault) Problem {
	line := f.line
	if line == 0 {
		line = d.places.find(f.field)
	}
	return Problem{Path: d.path, Line: d.first - 1 + line, Field: f.field, Message: f.message}
}

// Decode reads the documents of a manifest: YAML or JSON, each a v1 Pod, PodList, or List of Pods. An unknown or repeated field
// is a warning. Documents with nothing but comments are omitted. Nothing is defaulted. path only names the file in problems.
func Decode(path string, data []byte) []Document {
	chunks, problems := documentsOf(path, data)
	if problems != nil {
		return []Document{{Problems: problems}}
	}
	var documents []Document
	for _, c := range chunks {
		documents = append(documents, decodeChunk(path, c, false)...)
	}
	return documents
}

func decodeChunk(path string, c chunk, submitted bool) []Document {
	document := Document{path: path, first: c.line, places: &locator{text: c.data}, submitted: submitted}
	text, faults, repeated := toJSON(c.data)
	if len(faults) > 0 {
		if lenient, err := yaml.YAMLToJSON(c.data); err == nil {
			document.namespace, document.name = readName(lenient)
		}
		return []Document{document.broken(faults...)}
	}
	document.warn(repeated)
	if strings.TrimSpace(string(text)) == "null" {
		return nil
	}
	head, faults := readHead(text, "")
	if len(faults) == 0 {
		faults = document.check(head, "Pod", "PodList", "List")
	}
	if len(faults) > 0 {
		return []Document{document.broken(faults...)}
	}
	if head.Kind != "PodList" && head.Kind != "List" {
		return []Document{document.decodeOne(text, head.Kind)}
	}
	return document.decodeList(text, head.Kind == "PodList")
}

// head identifies the kind of an object. The values may have any type.
type head struct{ APIVersion, Kind any }

func readHead(text []byte, prefix string) (head, []fault) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		at := strings.TrimSuffix(prefix, ".")
		return head{}, []fault{{field: at, message: "must be an object with apiVersion and kind"}}
	}
	var h head
	for name, into := range map[string]*any{"apiVersion": &h.APIVersion, "kind": &h.Kind} {
		if err := json.Unmarshal(fields[name], into); err != nil {
			*into = nil // it is absent
		}
	}
	return h, nil
}

// warn adds warnings to the document. It clones the slice, which copies of the document share.
func (d *Document) warn(faults []fault) {
	d.Warnings = slices.Clone(d.Warnings)
	for _, f := range faults {
		p := d.problem(f)
		p.Warning = true
		d.Warnings = append(d.Warnings, p)
	}
}

func (d Document) broken(faults ...fault) Document {
	for _, f := range faults {
		d.Problems = append(d.Problems, d.problem(f))
	}
	d.Pod = nil
	return d
}

// submittable are the kinds that can be submitted besides Pods and lists.
func submittable() []string {
	return append([]string{"ConfigMap", "Secret"}, slices.Sorted(maps.Keys(templated))...)
}

// checkKind returns the faults of a document's apiVersion and kind.
func checkKind(h head, version, prefix string, kinds ...string) []fault {
	check := func(name string, value any, valid ...string) []fault {
		at := field.NewPath(prefix + name)
		text, isText := value.(string)
		switch {
		case value == nil || (isText && text == ""):
			return []fault{faultOf(field.Required(at, "must be "+strings.Join(valid, ", ")))}
		case !isText:
			return []fault{faultOf(field.TypeInvalid(at, value, "must be text"))}
		case !slices.Contains(valid, text):
			return []fault{faultOf(field.NotSupported(at, text, valid))}
		}
		return nil
	}
	if kind, _ := h.Kind.(string); kind != "" && !slices.Contains(kinds, kind) { // its apiVersion is another's
		message := fmt.Sprintf("%s is not something a node runs; it takes %s", kind, strings.Join(kinds, ", "))
		if i := slices.IndexFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }); i >= 0 {
			message = fmt.Sprintf("there is no kind %s; did you mean %s?", kind, kinds[i])
		}
		return []fault{{field: prefix + "kind", message: message}}
	}
	return append(check("apiVersion", h.APIVersion, version), check("kind", h.Kind, kinds...)...)
}

// decodeList decodes the items of a list. Items of a PodList need no apiVersion and kind.
func (d Document) decodeList(text []byte, typed bool) []Document {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]any    `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	faults, passedOver := unmarshal(text, &list, "")
	if len(faults) > 0 {
		return []Document{d.broken(faults...)}
	}
	if len(list.Items) == 0 && len(passedOver) > 0 { // "items" may be misspelt: its pods must keep running
		return []Document{d.broken(passedOver...)}
	}
	d.warn(passedOver)
	documents := make([]Document, 0, len(list.Items))
	for i, item := range list.Items {
		one := d
		one.prefix = fmt.Sprintf("items[%d].", i)
		documents = append(documents, one.decodeItem(item, typed))
		d.Warnings = nil // the first item has the list's warnings
	}
	return documents
}

func (d Document) decodeItem(text []byte, typed bool) Document {
	head, faults := readHead(text, d.prefix)
	if len(faults) == 0 && (!typed || head.Kind != nil || head.APIVersion != nil) {
		faults = d.check(head, "Pod")
	}
	if len(faults) > 0 {
		return d.broken(faults...)
	}
	return d.decodeOne(text, head.Kind)
}

// check checks the kind: one of these, or of those that have a pod's template.
func (d Document) check(h head, kinds ...string) []fault {
	version := "v1"
	if d.submitted {
		kinds = append(kinds, submittable()...)
		if kind, ok := h.Kind.(string); ok && templated[kind].version != "" {
			version = templated[kind].version
		}
	}
	return checkKind(h, version, d.prefix, kinds...)
}

// decodeOne decodes a Pod, or an object with a pod's template.
func (d Document) decodeOne(text []byte, kind any) Document {
	switch kind {
	case "Pod", nil:
		return d.decodePod(text)
	case "ConfigMap", "Secret": // a fault of one must not quote it
		return d.broken(fault{field: d.prefix + "kind", message: "must stand in a document of its own, not in a list"})
	}
	return d.decodeTemplated(text, kind.(string))
}

func (d Document) decodePod(text []byte) Document {
	d.namespace, d.name = readName(text)
	pod := &v1.Pod{}
	faults, passedOver := unmarshal(text, pod, d.prefix)
	if len(faults) > 0 {
		return d.broken(faults...)
	}
	d.warn(passedOver)
	d.Pod = pod
	return d
}

// readName returns the namespace and name in a document that may have faults elsewhere. Either is empty if it cannot be read.
func readName(text []byte) (namespace, name string) {
	var head struct {
		Metadata struct{ Namespace, Name any }
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return "", ""
	}
	namespace, _ = head.Metadata.Namespace.(string)
	name, _ = head.Metadata.Name.(string)
	return namespace, name
}
