package agent

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// timely gives a pod's first container the ConfigMap times, in its environment and as the volume times.
func timely(manifest string) string {
	const image = "    image: forever\n"
	return strings.Replace(manifest, image,
		image+"    envFrom: [{configMapRef: {name: times}}]\n    volumeMounts: [{name: times, mountPath: /times}]\n", 1) +
		"  volumes: [{name: times, configMap: {name: times}}]\n"
}

// keepsTime writes the time to the API server's ConfigMap "times".
func (r *clusterRig) keepsTime(time string) {
	r.t.Helper()
	object := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "times"}, Data: map[string]string{"time": time}}
	client := r.api.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	_, err := client.Update(context.Background(), object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(context.Background(), object, metav1.CreateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// keepsRegistry writes the credentials of the image "private" to the API server's Secret "registry".
func (r *clusterRig) keepsRegistry() {
	r.t.Helper()
	object := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"me","password":"word"}}}`)},
	}
	if _, err := r.api.CoreV1().Secrets(metav1.NamespaceDefault).Create(context.Background(), object,
		metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// A pod of the API server reads that server's objects, a static pod those of the folder, even if their names are equal. Either
// waits for missing objects, and starts when they appear.
func TestObjectsOfTwoOrigins(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.write("web.yaml", timely(manifest("web", "Always", nil, []string{"main forever"})))
	r.binds(timely(manifest("cloud", "Always", nil, []string{"main forever"})))
	r.untilPrinted([]string{"pods"}, "cloud", "ConfigMap default/times does not exist")
	saysTime(r.rig, "local")
	r.await("the static pod", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
	if isUp(r.runtime.Snapshot(), "cloud") {
		t.Error("the pod of the API server runs with the folder's ConfigMap")
	}
	r.keepsTime("noon")
	r.await("the pod of the API server", func(s sim.Snapshot) bool { return isUp(s, "cloud") })
	for name, want := range map[string]string{"cloud": "noon", "web-node": "local"} {
		awaitTime(r.rig, r.runtime.Snapshot().Container(name, "main").PodUID, want)
	}
	r.keepsTime("night")
	awaitTime(r.rig, r.runtime.Snapshot().Container("cloud", "main").PodUID, "night")
}
