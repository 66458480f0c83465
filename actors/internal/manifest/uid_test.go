package manifest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func fileOptions() Options {
	return Options{NodeName: "Node-1", Source: FileSource, Now: time.Date(2026, 7, 8, 9, 10, 11, 120, time.UTC)}
}

// TestUIDsAreTheKubelets compares with the results of the kubelet (Kubernetes 1.36.3) for the same manifests,
// on node Node-1 and in /etc/kubernetes/manifests.
func TestUIDsAreTheKubelets(t *testing.T) {
	data, err := os.ReadFile("testdata/uid/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]string
	if err := json.Unmarshal(data, &golden); err != nil || len(golden) == 0 {
		t.Fatalf("no golden UIDs: %v", err)
	}
	for file, want := range golden {
		pod := onePod(t, readFile(t, filepath.Join("testdata/uid", file)))
		if got := uidOf(pod, "/etc/kubernetes/manifests/"+file, fileOptions()); string(got) != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func onePod(t *testing.T, data []byte) *v1.Pod {
	t.Helper()
	documents := Decode("test.yaml", data)
	if len(documents) != 1 || documents[0].Pod == nil {
		t.Fatalf("not one pod: %+v", documents)
	}
	return documents[0].Pod
}

const smallPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: busybox}]}
`

func TestUIDDependsOnWhatIsRunAndWhere(t *testing.T) {
	uid := func(data, path string, change func(*Options)) string {
		opts := fileOptions()
		change(&opts)
		return string(uidOf(onePod(t, []byte(data)), path, opts))
	}
	keep := func(*Options) {}
	base := uid(smallPod, "/a", keep)
	for name, same := range map[string]string{
		"comments and order": uid("# hello\n"+`{kind: Pod, spec: {containers: [{image: busybox, name: main}]}, `+
			`metadata: {name: web}, apiVersion: v1}`, "/a", keep),
		"a default spelt out": uid(smallPod[:len(smallPod)-2]+", restartPolicy: Always}", "/a", keep),
		"later":               uid(smallPod, "/a", func(o *Options) { o.Now = o.Now.Add(time.Hour) }),
	} {
		if same != base {
			t.Errorf("%s: the UID changed", name)
		}
	}
	seen := map[string]string{base: "the manifest itself"}
	for name, other := range map[string]string{
		"another image":      uid(smallPod[:len(smallPod)-5]+":1}]}", "/a", keep),
		"another path":       uid(smallPod, "/b", keep),
		"another node":       uid(smallPod, "/a", func(o *Options) { o.NodeName = "Node-2" }),
		"from a URL":         uid(smallPod, "/a", func(o *Options) { o.Source = HTTPSource }),
		"another grace time": uid(smallPod[:len(smallPod)-2]+", terminationGracePeriodSeconds: 31}", "/a", keep),
		"a field of 1.37": uid(smallPod[:len(smallPod)-2]+", evictionResponders: [{name: a.example/b, priority: 1}]}", "/a",
			keep),
	} {
		if before, taken := seen[other]; taken {
			t.Errorf("%s has the UID of %s", name, before)
		}
		seen[other] = name
	}
	http := func(o *Options) { o.Source = HTTPSource }
	elsewhere := func(o *Options) { o.Source, o.NodeName = HTTPSource, "Node-2" }
	if uid(smallPod, "http://a", http) != uid(smallPod, "http://a", elsewhere) {
		t.Error("the UID of a pod from a URL depends on the node, which the kubelet's does not")
	}
}
