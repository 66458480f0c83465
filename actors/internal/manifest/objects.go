package manifest

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxObjectBytes limits the data of an object (the API server's limit for ConfigMaps and Secrets).
const maxObjectBytes = 1 << 20

// Objects are the ConfigMaps, Secrets and RuntimeClasses of one file.
type Objects struct {
	ConfigMaps     []*v1.ConfigMap
	Secrets        []*v1.Secret
	RuntimeClasses []*nodev1.RuntimeClass
}

// With returns the objects, and the objects of more with another namespace or name.
func (o Objects) With(more Objects) Objects {
	return Objects{
		with(o.ConfigMaps, more.ConfigMaps), with(o.Secrets, more.Secrets), with(o.RuntimeClasses, more.RuntimeClasses),
	}
}

func with[T metav1.Object](all, more []T) []T {
	out := slices.Clone(all)
	for _, m := range more {
		if !slices.ContainsFunc(all, func(o T) bool {
			return o.GetNamespace() == m.GetNamespace() && o.GetName() == m.GetName()
		}) {
			out = append(out, m)
		}
	}
	return out
}

// LoadObjects reads the ConfigMaps, Secrets and RuntimeClasses of a manifest: documents of YAML or JSON. They are defaulted (a
// namespace, stringData among data) and validated. A document with problems gives no object, and hides no other. A problem never
// quotes the data of an object or a line of the file.
func LoadObjects(path string, data []byte) (out Objects, problems []Problem) {
	chunks, problems := documentsOf(path, data)
	for _, c := range chunks {
		good, found := loadObject(path, c)
		problems = append(problems, found...)
		if len(found) == 0 {
			out.ConfigMaps = append(out.ConfigMaps, good.ConfigMaps...)
			out.Secrets = append(out.Secrets, good.Secrets...)
			out.RuntimeClasses = append(out.RuntimeClasses, good.RuntimeClasses...)
		}
	}
	return out, limited(problems)
}

func loadObject(path string, c chunk) (Objects, []Problem) {
	l := objectLoading{document: Document{path: path, first: c.line, places: &locator{text: c.data}}}
	l.load(c.data)
	return l.out, l.problems
}

type objectLoading struct {
	document Document
	out      Objects // the one
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
	text, faults, repeated := toJSON(data)
	faults = append(faults, repeated...)
	if len(faults) > 0 {
		// The parser's message can quote the file, and so a Secret.
		p := l.document.problem(faults[0])
		p.Field, p.Message = "", "is neither YAML nor JSON here, or has a key twice"
		l.problems = append(l.problems, p)
		return
	}
	if string(text) == "null" {
		return
	}
	head, faults := readHead(text, "")
	version := "v1"
	if head.Kind == runtimeClass {
		version = nodev1.SchemeGroupVersion.String()
	}
	if len(faults) == 0 {
		faults = checkKind(head, version, "", "ConfigMap", "Secret", runtimeClass)
	}
	for _, f := range faults {
		l.problems = append(l.problems, l.document.problem(f))
	}
	if len(faults) > 0 {
		return
	}
	switch head.Kind {
	case runtimeClass:
		l.runtimeClass(text)
	case "ConfigMap":
		l.configMap(text)
	default:
		l.secret(text)
	}
}

func (l *objectLoading) configMap(text []byte) {
	object := &v1.ConfigMap{}
	if l.namespaced(text, object, &object.ObjectMeta, "ConfigMap") {
		checkKeys(l, "data", object.Data, nil)
		checkKeys(l, "binaryData", object.BinaryData, object.Data)
		l.size(bytesOf(object.Data) + bytesOf(object.BinaryData))
		l.out.ConfigMaps = append(l.out.ConfigMaps, object)
	}
}

func (l *objectLoading) secret(text []byte) {
	object := &v1.Secret{}
	if !l.namespaced(text, object, &object.ObjectMeta, "Secret") {
		return
	}
	checkKeys(l, "data", object.Data, nil)
	checkKeys(l, "stringData", object.StringData, nil)
	for key, value := range object.StringData {
		if object.Data == nil {
			object.Data = map[string][]byte{}
		}
		object.Data[key] = []byte(value)
	}
	object.StringData = nil
	l.size(bytesOf(object.Data))
	l.out.Secrets = append(l.out.Secrets, object)
}

const runtimeClass = "RuntimeClass"

// runtimeClass decodes a class, which has no namespace. An API server would copy its overhead and scheduling into pods; here
// their author has to write them.
func (l *objectLoading) runtimeClass(text []byte) {
	object := &nodev1.RuntimeClass{}
	if !l.decode(text, object, runtimeClass) {
		return
	}
	l.object = runtimeClass + " " + object.Name
	l.name(object.Name)
	if object.Namespace != "" {
		l.wrong("metadata.namespace", "is not known to a RuntimeClass, which is for all of them")
	}
	for _, message := range validation.IsDNS1123Label(object.Handler) {
		l.wrong("handler", message)
	}
	if object.Overhead != nil {
		l.wrong("overhead", "no API server writes it into pods here: what counts is spec.overhead of each pod")
	}
	if object.Scheduling != nil {
		l.wrong("scheduling",
			"no API server writes it into pods here: spec.nodeSelector and spec.tolerations of each pod count")
	}
	l.out.RuntimeClasses = append(l.out.RuntimeClasses, object)
}

func (l *objectLoading) decode(text []byte, into any, kind string) bool {
	faults, passedOver := unmarshal(text, into, "")
	for _, f := range append(faults, passedOver...) {
		l.wrong(f.field, "is not known to a "+kind+", is there twice, or holds what does not fit it (data of a Secret is base64)")
	}
	return len(l.problems) == 0
}

// namespaced decodes an object with a namespace.
func (l *objectLoading) namespaced(text []byte, into any, meta *metav1.ObjectMeta, kind string) bool {
	if !l.decode(text, into, kind) {
		return false
	}
	if meta.Namespace == "" {
		meta.Namespace = v1.NamespaceDefault
	}
	l.object = kind + " " + meta.Namespace + "/" + meta.Name
	l.name(meta.Name)
	for _, message := range apivalidation.ValidateNamespaceName(meta.Namespace, false) {
		l.wrong("metadata.namespace", message)
	}
	return true
}

func (l *objectLoading) name(name string) {
	for _, message := range apivalidation.NameIsDNSSubdomain(name, false) {
		l.wrong("metadata.name", message)
	}
}

// checkKeys checks the keys of a map, which must not be in others.
func checkKeys[V any](l *objectLoading, field string, all map[string]V, others map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		for _, message := range validation.IsConfigMapKey(key) {
			l.wrong(field, fmt.Sprintf("the key %q: %s", key, message))
		}
		if _, twice := others[key]; twice {
			l.wrong(field, fmt.Sprintf("the key %q is in data, too", key))
		}
	}
}

func bytesOf[V string | []byte](all map[string]V) (n int) {
	for _, value := range all {
		n += len(value)
	}
	return n
}

func (l *objectLoading) size(n int) {
	if n > maxObjectBytes {
		l.wrong("", fmt.Sprintf("holds %d bytes, %d may be", n, maxObjectBytes))
	}
}
