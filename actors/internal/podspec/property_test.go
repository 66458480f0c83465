package podspec

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// words are the strings in random pods: colliding names, meaningful values, and nonsense.
var words = []string{
	"", "a", "b", "main", "web", "Always", "Never", "None", "linux", "latest", "a:latest", "/", "/tmp", "..", "../x",
	"a/../b", "..x", "Localhost", "Unmasked", "v1", "limits.cpu", "metadata.labels['a']", "hugepages-2Mi", "cpu",
	"memory", "example.com/gpu", "net.ipv4.x", "TCP", "HTTP", "Exists", "10.0.0.1", "NOT A NAME", "é\x00",
}

// fill sets value and all below it to random values; most remain unset, as in manifests.
func fill(t *rapid.T, value reflect.Value, depth int) {
	switch value.Interface().(type) {
	case resource.Quantity:
		amount := rapid.SampledFrom([]string{"0", "1", "100u", "1500m", "2Mi", "3Mi", "-1"}).Draw(t, "quantity")
		value.Set(reflect.ValueOf(resource.MustParse(amount)))
		return
	case intstr.IntOrString:
		value.Set(reflect.ValueOf(intstr.Parse(rapid.SampledFrom([]string{"0", "80", "http", "70000"}).Draw(t, "port"))))
		return
	case metav1.ObjectMeta, metav1.Time:
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(rapid.SampledFrom(words).Draw(t, "word"))
	case reflect.Bool:
		value.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int32, reflect.Int64:
		value.SetInt(rapid.SampledFrom([]int64{0, 1, -1, 80, 512, 70000, 1 << 30}).Draw(t, "int"))
	case reflect.Pointer:
		if isDrawn(t, depth) {
			value.Set(reflect.New(value.Type().Elem()))
			fill(t, value.Elem(), depth+1)
		}
	case reflect.Slice:
		if isDrawn(t, depth) {
			n := rapid.IntRange(1, 2).Draw(t, "items")
			value.Set(reflect.MakeSlice(value.Type(), n, n))
			for i := range n {
				fill(t, value.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if isDrawn(t, depth) {
			value.Set(reflect.MakeMap(value.Type()))
			key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
			fill(t, key, depth+1)
			fill(t, element, depth+1)
			value.SetMapIndex(key, element)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			fill(t, value.Field(i), depth)
		}
	}
}

// isDrawn leaves most fields of a pod unset, and more at greater depth.
func isDrawn(t *rapid.T, depth int) bool { return rapid.IntRange(0, 2+2*depth).Draw(t, "drawn") == 0 }

func randomPod(t *rapid.T) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	if rapid.Bool().Draw(t, "annotated") {
		key := rapid.SampledFrom([]string{
			v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main", v1.MirrorPodAnnotationKey,
		}).Draw(t, "annotation")
		pod.Annotations = map[string]string{key: rapid.SampledFrom(append(words, "localhost/x")).Draw(t, "value")}
	}
	fill(t, reflect.ValueOf(&pod.Spec).Elem(), 0)
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "main", Image: "busybox"})
	return pod
}

func TestDefaultIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := randomPod(t)
		Default(pod)
		once := pod.DeepCopy()
		Default(pod)
		if got, want := asText(t, pod), asText(t, once); got != want {
			t.Fatalf("once\n%s\ntwice\n%s", want, got)
		}
	})
}

func TestChecksChangeNothingAndAreRepeatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := randomPod(t)
		Default(pod)
		before := asText(t, pod)
		first := kinds(append(append(Validate(pod), ValidateStatic(pod, ObjectSources{})...), Unsupported(pod)...))
		second := kinds(append(append(Validate(pod), ValidateStatic(pod, ObjectSources{})...), Unsupported(pod)...))
		if after := asText(t, pod); after != before {
			t.Fatalf("before\n%s\nafter\n%s", before, after)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("first %v\nthen %v", first, second)
		}
	})
}

func asText(t *rapid.T, pod *v1.Pod) string {
	text, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
