package translate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func envText(env []EnvVar) string {
	var lines []string
	for _, e := range env {
		lines = append(lines, e.Name+"="+e.Value)
	}
	return strings.Join(lines, " ")
}

func testEnvSources() EnvSources {
	return EnvSources{
		Services: map[string]string{"Z_HOST": "10.0.0.1", "A_HOST": "10.0.0.2", "OWN": "service"},
		ConfigMap: func(name string) (*v1.ConfigMap, bool, error) {
			return &v1.ConfigMap{Data: map[string]string{"b": "2", "a": "1"}}, name == "settings", nil
		},
		Secret: func(name string) (*v1.Secret, bool, error) {
			return &v1.Secret{Data: map[string][]byte{"token": []byte("t")}}, name == "keys", nil
		},
		File: func(volume, path, key string) (string, bool, error) {
			return volume + ":" + path + ":" + key, key != "missing", nil
		},
	}
}

func fromConfigMap(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
}

func fromSecret(name, key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
}

func fromFile(key string, optional bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "p", Key: key, Optional: &optional}}
}

func TestResolveEnv(t *testing.T) {
	yes := true
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	container := &v1.Container{
		EnvFrom: []v1.EnvFromSource{
			{Prefix: "C_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: &yes}},
		},
		Env: []v1.EnvVar{
			{Name: "C_a", Value: "over"},
			{Name: "OWN", Value: "$(C_b)-$(token)-$(A_HOST)-$(LATER)-$$(C_b)"},
			{Name: "LATER", Value: "$(OWN)"},
			{Name: "EMPTY"},
			{Name: "CM", ValueFrom: fromConfigMap("settings", "a", false)},
			{Name: "CM_NONE", ValueFrom: fromConfigMap("none", "a", true)},
			{Name: "CM_NO_KEY", ValueFrom: fromConfigMap("settings", "x", true)},
			{Name: "S", ValueFrom: fromSecret("keys", "token", false)},
			{Name: "S_NO_KEY", ValueFrom: fromSecret("keys", "x", true)},
			{Name: "F", ValueFrom: fromFile("k", false)},
			{Name: "F_NONE", ValueFrom: fromFile("missing", true)},
			{Name: "POD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		},
	}
	env, err := ResolveEnv(pod, container, testEnvSources())
	want := "C_a=over C_b=2 token=t OWN=2-t-10.0.0.2-$(LATER)-$(C_b) LATER=2-t-10.0.0.2-$(LATER)-$(C_b)" +
		" EMPTY= CM=1 S=t F=v:p:k POD=web A_HOST=10.0.0.2 Z_HOST=10.0.0.1"
	if err != nil || envText(env) != want {
		t.Errorf("%v\n got %s\nwant %s", err, envText(env), want)
	}
}

func TestEnvThatIsNotThere(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
	for want, source := range map[string]*v1.EnvVarSource{
		"ConfigMap default/none does not exist":               fromConfigMap("none", "a", false),
		"ConfigMap default/settings has no key \"x\"":         fromConfigMap("settings", "x", false),
		"Secret default/none does not exist":                  fromSecret("none", "a", false),
		"Secret default/keys has no key \"x\"":                fromSecret("keys", "x", false),
		"file p of volume \"v\" has no value for key missing": fromFile("missing", false),
		`fieldPath "spec.containers" is not supported`:        {FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.containers"}},
		`resource "limits.x" is not supported`:                {ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.x"}},
		"resource limits.cpu: the pod has no container": {ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c",
			Resource: "limits.cpu"}},
	} {
		_, err := ResolveEnv(pod, &v1.Container{Env: []v1.EnvVar{{Name: "X", ValueFrom: source}}}, testEnvSources())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "environment variable X") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestEnvOfANodeWithoutSources(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	for want, container := range map[string]*v1.Container{
		"address is not known": {Env: []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}}}}},
	} {
		if _, err := ResolveEnv(pod, container, EnvSources{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	boom := errors.New("boom")
	_, err := ResolveEnv(pod, &v1.Container{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{}}}},
		EnvSources{Secret: func(string) (*v1.Secret, bool, error) { return nil, false, boom }})
	if !errors.Is(err, boom) {
		t.Errorf("a failing source: %v", err)
	}
}

func TestPodFields(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "u",
			Labels: map[string]string{"b": "2", "a": `x"y`}, Annotations: map[string]string{"example.org/K": "v"},
		},
		Spec: v1.PodSpec{NodeName: "n", ServiceAccountName: "sa"},
	}
	src := EnvSources{PodIPs: []string{"10.1.0.7", "fd00::7"}, HostIPs: []string{"192.0.2.1", "2001:db8::1"}}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "default", "metadata.uid": "u",
		"metadata.labels": "a=\"x\\\"y\"\nb=\"2\"", "metadata.annotations": `example.org/K="v"`,
		"metadata.labels['b']": "2", "metadata.labels['none']": "", "metadata.annotations['example.org/K']": "v",
		"spec.nodeName": "n", "spec.serviceAccountName": "sa",
		"status.podIP": "10.1.0.7", "status.podIPs": "10.1.0.7,fd00::7",
		"status.hostIP": "192.0.2.1", "status.hostIPs": "192.0.2.1,2001:db8::1",
	} {
		if got, err := podField(pod, path, src); err != nil || got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"", "metadata.labels['a b']", "metadata.name['x']", "['x']", "status.phase"} {
		if got, err := podField(pod, path, src); err == nil {
			t.Errorf("%s gave %q", path, got)
		}
	}
	if got, err := podField(pod, "status.podIP", EnvSources{}); err != nil || got != "" {
		t.Errorf("a pod without address: %q, %v", got, err)
	}
}

func TestResourceFields(t *testing.T) {
	q := resource.MustParse
	container := v1.Container{Name: "c", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": q("1500m"), "memory": q("100Mi"), "hugepages-2Mi": q("4Mi")},
		Limits:   v1.ResourceList{"memory": q("200Mi")},
	}}
	other := v1.Container{Name: "other", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": q("3")}}}
	allocatable := v1.ResourceList{"cpu": q("8"), "memory": q("16Gi"), "ephemeral-storage": q("10Gi"), "hugepages-2Mi": q("1Gi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container}, InitContainers: []v1.Container{other}}}
	shared := pod.DeepCopy()
	shared.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": q("4")}}
	for _, tc := range []struct {
		pod  *v1.Pod
		ref  v1.ResourceFieldSelector
		want string
	}{
		{pod, v1.ResourceFieldSelector{Resource: "requests.cpu"}, "2"},
		{pod, v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: q("1m")}, "1500"},
		{pod, v1.ResourceFieldSelector{Resource: "requests.memory", Divisor: q("1Mi")}, "100"},
		{pod, v1.ResourceFieldSelector{Resource: "limits.memory"}, fmt.Sprint(200 << 20)},
		{pod, v1.ResourceFieldSelector{Resource: "limits.cpu"}, "8"},
		{shared, v1.ResourceFieldSelector{Resource: "limits.cpu"}, "4"},
		{pod, v1.ResourceFieldSelector{Resource: "limits.ephemeral-storage", Divisor: q("1Gi")}, "10"},
		{pod, v1.ResourceFieldSelector{Resource: "requests.ephemeral-storage"}, "0"},
		{pod, v1.ResourceFieldSelector{Resource: "requests.hugepages-2Mi", Divisor: q("1Mi")}, "4"},
		{pod, v1.ResourceFieldSelector{Resource: "limits.hugepages-2Mi"}, "0"},
		{pod, v1.ResourceFieldSelector{ContainerName: "other", Resource: "requests.cpu"}, "3"},
	} {
		if got, err := resourceField(tc.pod, &container, &tc.ref, allocatable); err != nil || got != tc.want {
			t.Errorf("%s of %q by %s: %q, %v, want %s", tc.ref.Resource, tc.ref.ContainerName, &tc.ref.Divisor, got, err, tc.want)
		}
	}
	if _, err := resourceField(pod, &container, &v1.ResourceFieldSelector{Resource: "cpu"}, nil); err == nil {
		t.Error("a resource of nothing was accepted")
	}
}
