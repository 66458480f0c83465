package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// classed has a manifest's pod name a RuntimeClass.
func classed(class, manifest string) string {
	return strings.Replace(manifest, "spec:\n", "spec:\n  runtimeClassName: "+class+"\n", 1)
}

func classManifest(name, handler string) string {
	return fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\n", name, handler)
}

// hasClass makes a RuntimeClass in the API server.
func (r *clusterRig) hasClass(name, handler string) {
	r.t.Helper()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
	if _, err := r.api.NodeV1().RuntimeClasses().Create(context.Background(), class, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func secondHandler() sim.Options {
	return sim.Options{Preload: []string{"forever"}, Handlers: []*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "second"}}}
}

// runsBy reports whether the pod runs, in its first sandbox, with a handler of the runtime.
func runsBy(handler, pod string) func(sim.Snapshot) bool {
	return func(s sim.Snapshot) bool {
		sandbox := s.Sandbox(pod)
		return isUp(s, pod) && sandbox.Handler == handler && sandbox.Attempt == 0
	}
}

// A pod whose class is missing waits, reports that as the kubelet does, and starts when the class is created. It keeps its
// handler across changes of the class, restarts of the agent and restarts of its containers. A pod whose handler the runtime
// lacks reports the runtime's error.
func TestAPodWaitsForItsRuntimeClass(t *testing.T) {
	r := newClusterRig(t, secondHandler())
	r.hasClass("odd", "third")
	r.start(nil)
	r.binds(classed("late", manifest("web", "Always", nil, []string{"main forever"})))
	r.binds(classed("odd", manifest("odd", "Always", nil, []string{"main forever"})))
	r.write("static.yaml", classed("late", manifest("static", "Always", nil, []string{"main forever"})))
	r.binds(manifest("plain", "Always", nil, []string{"main forever"}))
	r.await("the pod without a class", runsBy("", "plain"))
	r.untilPrinted([]string{"pods"}, "web", `runtimeclass.node.k8s.io "late" not found`)
	r.untilPrinted([]string{"pods"}, "odd", `the runtime has no handler "third", which the pod's RuntimeClass names`)
	r.eventually("the event", func() bool {
		for text := range r.events("web") {
			if strings.HasPrefix(text, `Warning FailedCreatePodSandBox : Failed to create pod sandbox: runtimeclass.node.k8s.io "late" not found`) {
				return true
			}
		}
		return false
	})
	r.untilPrinted([]string{"pods"}, "static-node", "nor is it in the folder of objects")
	r.hasClass("late", "second")
	r.await("the pods with it", func(s sim.Snapshot) bool {
		return runsBy("second", "web")(s) &&
			runsBy("second", "static-node")(s)
	})
	if s := r.runtime.Snapshot().Sandbox("odd"); s != nil {
		t.Errorf("there is a sandbox of a handler that is not: %+v", s)
	}

	if err := r.api.NodeV1().RuntimeClasses().Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "web", "Running")
	if err := r.runtime.Exit(r.runtime.Snapshot().Sandbox("web").UID, "main", 1, "Error"); err != nil {
		t.Fatal(err)
	}
	r.await("its container again, in the same sandbox", func(s sim.Snapshot) bool {
		return runsBy("second", "web")(s) && runsBy("second", "static-node")(s) && s.Container("web", "main").Attempt == 1
	})
}

// RuntimeClasses that cannot be read are neither there nor missing: pods that name one wait for them, others do not.
func TestPod_WaitsForUnreadRuntimeClasses(t *testing.T) {
	r := newClusterRig(t, secondHandler())
	var served atomic.Bool
	no := errors.New("the API server is out of sorts")
	r.api.PrependReactor("list", "runtimeclasses", func(ktesting.Action) (bool, runtime.Object, error) {
		return !served.Load(),
			nil, no
	})
	r.api.PrependWatchReactor("runtimeclasses", func(ktesting.Action) (bool, apiwatch.Interface, error) {
		return !served.Load(),
			nil, no
	})
	r.hasClass("class", "second")
	r.start(nil)
	r.binds(classed("class", manifest("web", "Always", nil, []string{"main forever"})))
	r.binds(manifest("plain", "Always", nil, []string{"main forever"}))
	r.await("the pod without a class", runsBy("", "plain"))
	r.untilPrinted([]string{"pods"}, "web", `RuntimeClass "class": it has not been read from the API server yet: the API server is out of sorts`)
	served.Store(true)
	r.await("the pod with it", runsBy("second", "web"))
}

// A standalone node has the classes of its folder of objects.
func TestRuntimeClassesOfAFolder(t *testing.T) {
	r := newRig(t, secondHandler())
	r.start(nil)
	r.write("web.yaml", classed("class", manifest("web", "Always", nil, []string{"main forever"})))
	r.untilPrinted([]string{"pods"}, "web", `RuntimeClass "class" does not exist in the folder of objects (--object-dir)`)
	text := classManifest("class", "second")
	if err := errors.Join(os.WriteFile(filepath.Join(r.dir, "class.new"), []byte(text), 0o600),
		os.Rename(filepath.Join(r.dir, "class.new"), filepath.Join(r.objects(), "class.yaml"))); err != nil {
		t.Fatal(err)
	}
	r.await("the pod with it", runsBy("second", "web-node"))
}
