package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// events returns the API server's events of one object, selected by name: "Reason path: message" with their counts.
func (r *clusterRig) events(object string) map[string]int32 {
	r.t.Helper()
	list, err := r.api.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int32{}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == object {
			out[fmt.Sprintf("%s %s %s: %s", e.Type, e.Reason, e.InvolvedObject.FieldPath, e.Message)] += e.Count
		}
	}
	return out
}

// awaitEvents waits until an object has exactly these events, each once unless it begins with a count. A * matches any text.
func (r *clusterRig) awaitEvents(object string, want ...string) {
	r.t.Helper()
	var got []string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the events of %s are\n%s", object, strings.Join(got, "\n"))
		}
	}()
	r.eventually("the events of "+object, func() bool {
		got = nil
		for text, n := range r.events(object) {
			if n != 1 {
				text = fmt.Sprint(n, " ", text)
			}
			got = append(got, text)
		}
		slices.Sort(got)
		if len(got) < len(want) {
			return false
		}
		slices.Sort(want)
		return slices.EqualFunc(got, want, alike) || len(got) > len(want)
	})
	if !slices.EqualFunc(got, want, alike) {
		r.t.Errorf("the events of %s are\n%s\ninstead of\n%s", object, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// awaitStarts waits until events report that number of starts of the agent.
func (r *clusterRig) awaitStarts(times int32) {
	r.t.Helper()
	r.eventually("the agent's start", func() bool { return r.events("node")["Normal Starting : Starting kubelet."] == times })
}

// alike reports whether a text matches a pattern with at most one *.
func alike(got, want string) bool {
	before, after, any := strings.Cut(want, "*")
	return got == want || any && strings.HasPrefix(got, before) && strings.HasSuffix(got, after)
}

// A pod starts, runs across a restart of the agent, and ends.
func TestTheEventsOfALife(t *testing.T) {
	r := newClusterRig(t, sim.Options{Script: sim.Script{ByContainer: map[string]sim.Sequence{"web/setup": {sim.ExitAfter(0,
		0)}}}})
	r.start(nil)
	pod := r.binds(manifest("web", "Always", []string{"setup once"}, []string{"main forever"}))
	life := []string{
		`Normal Pulling spec.initContainers{setup}: Pulling image "once"`,
		`Normal Pulled spec.initContainers{setup}: Successfully pulled image "once" in * bytes.`,
		"Normal Created spec.initContainers{setup}: Container created",
		"Normal Started spec.initContainers{setup}: Container started",
		`Normal Pulling spec.containers{main}: Pulling image "forever"`,
		`Normal Pulled spec.containers{main}: Successfully pulled image "forever" in * bytes.`,
		"Normal Created spec.containers{main}: Container created", "Normal Started spec.containers{main}: Container started",
	}
	r.awaitEvents("web", life...)
	r.awaitStarts(1)
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "web", "Running")
	r.deletes("web", 2)
	r.await("its end", func(s sim.Snapshot) bool { return s.Sandbox("web") == nil })
	r.awaitEvents("web", append(life, "Normal Killing spec.containers{main}: Stopping container main; the pod is ending because *")...)
	r.awaitStarts(2)
	list, err := r.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == "web" && (e.InvolvedObject.UID != pod.UID ||
			e.Source != (v1.EventSource{Component: "kubelet", Host: "node"})) {
			t.Errorf("an event is %+v", e)
		}
	}
}

// A static pod's events have its own UID: kubectl looks there for those of its mirror pod.
func TestTheEventsOfAStaticPod(t *testing.T) {
	r := newClusterRig(t, sim.Options{Preload: []string{"forever:1"}})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever:1"}))
	r.awaitEvents("web-node", `Normal Pulled spec.containers{main}: Container image "forever:1" already present on machine`,
		"Normal Created spec.containers{main}: Container created", "Normal Started spec.containers{main}: Container started")
	uid := r.runtime.Snapshot().Sandbox("web-node").UID
	list, err := r.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Pod" && string(e.InvolvedObject.UID) != uid {
			t.Errorf("an event is of %s", e.InvolvedObject.UID)
		}
	}
}

// Failures are reported in the kubelet's words.
func TestTheEventsOfTrouble(t *testing.T) {
	t.Parallel()
	crash := sim.ExitAfter(0, 1)
	r := newClusterRig(t, sim.Options{
		Preload: []string{"forever:1"}, Images: map[string]sim.Image{"private": {Username: "me", Password: "word"}},
		Script: sim.Script{ByContainer: map[string]sim.Sequence{"crash/main": {crash, crash, crash}}},
	})
	r.runtime.Inject(sim.Fault{Call: "RunPodSandbox", Times: 1, Kind: sim.Error, Err: fmt.Errorf("no network today")})
	r.start(nil)
	r.binds(manifest("late", "Always", nil, []string{"main forever:1"}))
	started := []string{
		`Normal Pulled spec.containers{main}: Container image "forever:1" already present on machine`,
		"Normal Created spec.containers{main}: Container created", "Normal Started spec.containers{main}: Container started",
	}
	r.awaitEvents("late", append(started, "Warning FailedCreatePodSandBox : Failed to create pod sandbox: *no network today")...)
	r.binds(manifest("crash", "Always", nil, []string{"main forever:1"}))
	twice := []string{"Warning BackOff spec.containers{main}: Back-off restarting failed container main in pod crash_default(*); container main exited with code 1"}
	for _, s := range started {
		twice = append(twice, "2 "+s)
	}
	r.awaitEvents("crash", twice...)
	r.binds(manifest("secret", "Always", nil, []string{"main private"}))
	r.awaitEvents("secret", `Normal Pulling spec.containers{main}: Pulling image "private"`,
		`Warning Failed spec.containers{main}: Failed to pull image "private": *`, "Warning Failed spec.containers{main}: Error: ErrImagePull; *",
		`Normal BackOff spec.containers{main}: Back-off pulling image "private"; *`, "Warning Failed spec.containers{main}: Error: ImagePullBackOff; *")
	r.binds(strings.Replace(manifest("never", "Always", nil, []string{"main nowhere"}), "    image: nowhere\n",
		"    image: nowhere\n    imagePullPolicy: Never\n", 1))
	r.awaitEvents("never", `Warning ErrImageNeverPull spec.containers{main}: Container image "nowhere" is not present with pull policy of Never; *`,
		"Warning Failed spec.containers{main}: Error: ErrImageNeverPull; *")
	r.binds(strings.Replace(manifest("mounts", "Always", nil, []string{"main forever:1"}), "    image: forever:1\n",
		"    image: forever:1\n    volumeMounts: [{name: h, mountPath: /h}]\n", 1) +
		"  volumes: [{name: h, hostPath: {path: /no/such/place, type: Directory}}]\n")
	r.eventually("a mount that fails", func() bool {
		for text := range r.events("mounts") {
			if strings.HasPrefix(text, `Warning FailedMount : MountVolume.SetUp failed for volume "h" : `) {
				return true
			}
		}
		return false
	})
}

// startsReported compares the started containers with their events. The counts are equal if no actor was killed; otherwise there
// are no more events than starts. It also checks that no event reports the stop of a container that was never started.
func startsReported(r *clusterRig, exactly bool) error {
	starts, sent := map[string]int32{}, map[string]int32{}
	for _, e := range r.runtime.Journal() {
		if e.Call == "StartContainer" && e.Err == "" {
			starts[e.PodName+"/"+e.Container]++
		}
	}
	list, err := r.api.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range list.Items {
		_, name, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
		if e.Reason == messages.EventStarted {
			sent[e.InvolvedObject.Name+"/"+name] += e.Count
		}
		if e.Reason == messages.EventKilling && starts[e.InvolvedObject.Name+"/"+name] == 0 {
			return fmt.Errorf("%s/%s was killed and never started", e.InvolvedObject.Name, name)
		}
	}
	for key := range sent {
		if sent[key] > starts[key] {
			return fmt.Errorf("%s was started %d times, and events say %d", key, starts[key], sent[key])
		}
	}
	for key := range starts {
		if exactly && sent[key] != starts[key] {
			return fmt.Errorf("%s was started %d times, and events say %d", key, starts[key], sent[key])
		}
	}
	return nil
}
