package manifest

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxObjectBytes is how much an object may hold (the API server's limit of ConfigMaps and Secrets).
const maxObjectBytes = 1 << 20

// Objects are the ConfigMaps and Secrets of one file.
type Objects struct {
	ConfigMaps []*v1.ConfigMap
	Secrets    []*v1.Secret
}

// LoadObjects reads the ConfigMaps and Secrets of a manifest: documents of YAML or JSON. They are defaulted (a namespace,
// stringData among data) and validated. When there are problems, the objects are not to be used. A problem never tells
// what an object holds, nor what a line of the file says.
func LoadObjects(path string, data []byte) (out Objects, problems []Problem) {
	if len(data) > MaxBytes {
		return out, []Problem{{Path: path, Message: fmt.Sprintf("is too large: %d bytes, %d may be", len(data), MaxBytes)}}
	}
	for _, c := range split(data) {
		l := objectLoading{document: Document{path: path, first: c.line, places: &locator{text: c.data}}, out: &out}
		l.load(c.data)
		problems = append(problems, l.problems...)
	}
	return out, problems
}

type objectLoading struct {
	document Document
	out      *Objects
	object   string
	problems []Problem
}

func (l *objectLoading) wrong(field, message string) {
	p := l.document.problem(fault{field: field, message: message})
	if l.object != "" {
		p.Message = l.object + ": " + p.Message
	}
	l.problems = append(l.problems, p)
}

func (l *objectLoading) load(data []byte) {
	text, faults := toJSON(data)
	if len(faults) > 0 {
		// What the parser says can quote the file, and so a Secret.
		p := l.document.problem(faults[0])
		p.Field, p.Message = "", "is neither YAML nor JSON here, or has a key twice"
		l.problems = append(l.problems, p)
		return
	}
	if string(text) == "null" {
		return
	}
	head, faults := readHead(text, "")
	if len(faults) == 0 {
		faults = checkKind(head, "", "ConfigMap", "Secret")
	}
	for _, f := range faults {
		l.problems = append(l.problems, l.document.problem(f))
	}
	if len(faults) > 0 {
		return
	}
	if head.Kind == "ConfigMap" {
		object := &v1.ConfigMap{}
		if l.decode(text, object, &object.ObjectMeta, "ConfigMap") {
			l.keys("data", object.Data, nil)
			l.keys("binaryData", object.BinaryData, object.Data)
			l.size(object.Data, object.BinaryData)
			l.out.ConfigMaps = append(l.out.ConfigMaps, object)
		}
		return
	}
	object := &v1.Secret{}
	if l.decode(text, object, &object.ObjectMeta, "Secret") {
		l.keys("data", object.Data, nil)
		l.keys("stringData", object.StringData, nil)
		for key, value := range object.StringData {
			if object.Data == nil {
				object.Data = map[string][]byte{}
			}
			object.Data[key] = []byte(value)
		}
		object.StringData = nil
		l.size(nil, object.Data)
		l.out.Secrets = append(l.out.Secrets, object)
	}
}

func (l *objectLoading) decode(text []byte, into any, meta *metav1.ObjectMeta, kind string) bool {
	for _, f := range unmarshal(text, into, "") {
		l.wrong(f.field, "is not known to a "+kind+", is there twice, or holds what does not fit it (data of a Secret is base64)")
	}
	if len(l.problems) > 0 {
		return false
	}
	if meta.Namespace == "" {
		meta.Namespace = v1.NamespaceDefault
	}
	l.object = kind + " " + meta.Namespace + "/" + meta.Name
	for _, message := range apivalidation.NameIsDNSSubdomain(meta.Name, false) {
		l.wrong("metadata.name", message)
	}
	for _, message := range apivalidation.ValidateNamespaceName(meta.Namespace, false) {
		l.wrong("metadata.namespace", message)
	}
	return true
}

func (l *objectLoading) keys(field string, data any, others map[string]string) {
	check := func(key string) {
		for _, message := range validation.IsConfigMapKey(key) {
			l.wrong(field, fmt.Sprintf("the key %q: %s", key, message))
		}
		if _, twice := others[key]; twice {
			l.wrong(field, fmt.Sprintf("the key %q is in data, too", key))
		}
	}
	switch m := data.(type) {
	case map[string]string:
		for _, key := range slices.Sorted(maps.Keys(m)) {
			check(key)
		}
	case map[string][]byte:
		for _, key := range slices.Sorted(maps.Keys(m)) {
			check(key)
		}
	}
}

func (l *objectLoading) size(text map[string]string, binary map[string][]byte) {
	n := 0
	for _, value := range text {
		n += len(value)
	}
	for _, value := range binary {
		n += len(value)
	}
	if n > maxObjectBytes {
		l.wrong("", fmt.Sprintf("holds %d bytes, %d may be", n, maxObjectBytes))
	}
}
