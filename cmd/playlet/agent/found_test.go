package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/cri/translate"
)

// found creates a pod in the runtime as left by another kubelet: one running container, and an emptyDir with a file. It returns
// the path of the file.
func (r *rig) found(uid, name string) string {
	r.t.Helper()
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: r.runtime.Endpoint()})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			r.t.Error(err)
		}
	}()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "web:1", ImagePullPolicy: v1.PullIfNotPresent}}},
	}
	node := translate.NodeFacts{PodLogsDir: filepath.Join(r.dir, "logs"), CPUCFSQuotaPeriod: 100 * time.Millisecond}
	sandboxConfig, err := translate.NewSandboxConfig(pod, node, translate.SandboxParams{})
	if err != nil {
		r.t.Fatal(err)
	}
	config, err := translate.NewContainerConfig(pod, &pod.Spec.Containers[0], node, translate.ContainerParams{ImageRef: "web:1"})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx := r.t.Context()
	sandbox, err := client.RunPodSandbox(ctx, sandboxConfig, "")
	if err != nil {
		r.t.Fatal(err)
	}
	id, err := client.CreateContainer(ctx, sandbox, config, sandboxConfig)
	if err == nil {
		err = client.StartContainer(ctx, id)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	data := filepath.Join(r.dir, "root", "pods", uid, "volumes", "kubernetes.io~empty-dir", "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(data, "precious")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return file
}

func isUp(s sim.Snapshot, pod string) bool {
	for _, c := range s.Containers {
		if c.PodName == pod && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return true
		}
	}
	return false
}

func exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// The unit of a kubelet has --kubeconfig. The pods of its API server are in no other source, and survive the switch to Playlet.
func TestUnheardSource_PodsStayUnchanged(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{
		{"--kubeconfig=" + unreachable(t)}, {"--bootstrap-kubeconfig=/none"}, {"--manifest-url=http://127.0.0.1:1/pods"}, {},
	} {
		r := newRig(t, sim.Options{Preload: []string{"web:1"}}, flags...)
		file := r.found("c7f0b1de-8a55-4d0a-9a7e-0f1c8a3a9f10", "coredns-abc")
		r.start(nil)
		r.write("web.yaml", manifest("web", "Always", nil, []string{"app web:1"}))
		r.await("the static pod", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
		if len(flags) == 0 { // every source has reported, so the pod is an orphan and ends; the others would end like this
			r.await("the end of the orphan", func(s sim.Snapshot) bool { return !isUp(s, "coredns-abc") })
			continue
		}
		r.remove("web.yaml")
		r.await("the end of the static pod", func(s sim.Snapshot) bool { return len(s.Sandboxes) == 1 })
		if !isUp(r.runtime.Snapshot(), "coredns-abc") || !exists(t, file) {
			t.Errorf("%v: the pod of the API server was ended", flags)
		}
	}
}

// A UID becomes an element of paths and addresses: one that leads elsewhere is refused, and does no harm.
func TestAUIDLeadsNowhereElse(t *testing.T) {
	r := newRig(t, sim.Options{Preload: []string{"web:1"}})
	victim := filepath.Join(r.dir, "victim")
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	withUID := func(name, uid string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", uid: " + uid +
			"}\nspec:\n  containers: [{name: app, image: 'web:1'}]\n"
	}
	r.start(nil)
	r.write("good.yaml", withUID("good", "good"))
	r.await("good", func(s sim.Snapshot) bool { return isUp(s, "good-node") })
	r.write("path.yaml", withUID("path", "x/../../victim"))
	r.write("address.yaml", withUID("address", "good/app"))
	r.write("later.yaml", withUID("later", "later"))
	r.await("later", func(s sim.Snapshot) bool { return isUp(s, "later-node") })
	now := r.agent.observatory.board.Now()
	for len(now.Problems) < 2 {
		var err error
		if now, err = r.agent.observatory.board.After(t.Context(), now.Version); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range now.Problems {
		if p.Field != "metadata.uid" {
			t.Errorf("refused for another reason: %+v", p)
		}
	}
	if !isUp(r.runtime.Snapshot(), "good-node") || !exists(t, victim) {
		t.Error("a manifest reached what is not its own")
	}
}
