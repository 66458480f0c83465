package chaos

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lease that was not renewed is a violation; goroutines that stay are a leak, which has the experiment wait, and fail in the
// end.
func TestExperiment_ChecksLeaseAndLeaks(t *testing.T) {
	f := fake.Start(t)
	f.Pods.Audited = true
	f.Actors.Goroutines = 100
	look := func() ([]violation, error) {
		c := newRun()
		c.experiment, c.goroutines = &experiment{}, 100
		c.Client, c.Out = api.NewClient(f.Socket), io.Discard
		err := c.look(context.Background(), true)
		return c.report.Violations, err
	}
	f.Pods.LeaseExpires = time.Now().Add(time.Hour)
	if v, err := look(); len(v) > 0 || err != nil {
		t.Errorf("of a node that is well: %v %v", v, err)
	}
	f.Pods.LeaseExpires, f.Actors.Goroutines = time.Now().Add(-time.Hour), 100+25+goroutineNoise+1
	v, err := look()
	if len(v) != 1 || !strings.Contains(v[0].Text, "the node's lease was not renewed before it ended at ") {
		t.Errorf("of a lease that has ended: %v", v)
	}
	if err == nil || !strings.Contains(err.Error(), "the agent has 176 goroutines, and had 100 before") {
		t.Errorf("of a leak: %v", err)
	}
}

// A node that violates a condition before the first step ends the experiment with that violation, without any fault.
func TestAnExperimentBeginsWithNothingViolated(t *testing.T) {
	f := fake.Start(t)
	f.Pods.Audited, f.Pods.LeaseExpires = true, time.Now().Add(-time.Hour)
	c := newRun()
	c.experiment, c.Client, c.Out = &experiment{}, api.NewClient(f.Socket), io.Discard
	err := c.baseline(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nothing was done: the node's lease was not renewed") {
		t.Error(err)
	}
}

// A pod that is to end and stays longer than it may is a deletion that was lost.
func TestAnExperimentLooksForLostDeletions(t *testing.T) {
	c := newRun()
	c.experiment, c.Out = &experiment{}, io.Discard
	pod := api.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}}
	pod.Ending, pod.Pod.Spec.TerminationGracePeriodSeconds = "its manifest is gone", new(int64(30))
	for ago, want := range map[time.Duration]int{80 * time.Second: 0, 100 * time.Second: 1} {
		c.report.Violations, c.seen = nil, map[string]bool{}
		c.ending["u1"] = time.Now().Add(-ago)
		if c.lookForLostDeletions(&api.Pods{Pods: []api.Pod{pod}}); len(c.report.Violations) != want {
			t.Errorf("ending for %s: %v", ago, c.report.Violations)
		}
	}
	if c.lookForLostDeletions(&api.Pods{}); len(c.ending) > 0 {
		t.Errorf("what is gone is remembered: %v", c.ending)
	}
}

// A Node that is reported as not ready is a violation. New remains of absent pods are a leak, and so is a container that runs
// twice. Remains of another agent are ignored.
func TestExperiment_ChecksTheNodeBeyondTheAgent(t *testing.T) {
	r, err := sim.Start(sim.Options{Socket: t.TempDir() + "/s", Preload: []string{"app:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	runtime, err := cri.Dial(cri.Options{RuntimeEndpoint: r.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = runtime.Close() }()
	root := t.TempDir()
	sandbox := func(uid, root string) *runtimeapi.PodSandboxConfig {
		return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "p" + uid, Uid: uid},
			Labels:      map[string]string{cri.LabelPodUID: uid, cri.LabelPodNamespace: "default", cri.LabelPodName: "p" + uid},
			Annotations: map[string]string{cri.AnnotationRootDir: root}}
	}
	add := func(uid, root string) string {
		id, err := runtime.RunPodSandbox(t.Context(), sandbox(uid, root), "")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	run := func(uid, in string, attempt uint32) {
		id, err := runtime.CreateContainer(t.Context(), in, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: "app:1"},
			Labels:      map[string]string{cri.LabelPodUID: uid, cri.LabelContainerName: "c", cri.LabelPodName: "p" + uid},
			Annotations: map[string]string{cri.AnnotationRootDir: root}}, sandbox(uid, root))
		if err == nil {
			err = runtime.StartContainer(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	folder := func(uid string) {
		if err := os.MkdirAll(filepath.Join(root, "pods", uid), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f := fake.Start(t)
	f.Pods.Audited, f.Pods.Runtime.Endpoint, f.Version.RootDir = true, r.Endpoint(), root
	f.Pods.Pods = []api.Pod{{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p1", UID: "1"}}}}
	add("2", root) // from before
	add("3", "/another/agent")
	folder("1")
	folder("2")
	in := add("1", root)
	run("1", in, 0)
	c := newRun()
	c.experiment, c.Client, c.Out = &experiment{}, api.NewClient(f.Socket), io.Discard
	defer func() {
		if err := c.leaks.end(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func(want string) {
		t.Helper()
		if err := c.look(t.Context(), true); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	look("")
	folder("4")
	look("the folder " + root + "/pods/4 of a removed pod still exists")
	run("1", in, 1)
	look("two instances of container c of pod /p1 run")
	add("5", root)
	look("of the removed pod default/p5 still exists")
	if len(c.report.Violations) > 0 {
		t.Error(c.report.Violations)
	}
	f.Pods.NotReady = "KubeletNotReady: a test"
	_ = c.look(t.Context(), false)
	if v := c.report.Violations; len(v) != 1 || v[0].Text != "the agent reports NotReady for its Node: KubeletNotReady: a test" {
		t.Error(v)
	}
}
