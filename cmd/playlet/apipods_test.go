package main

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// A pod of the API server runs beside a static one, and ends when it is deleted.
func TestAPodOfTheAPIServer(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever"}))
	pod := r.binds(manifest("api", "Always", nil, []string{"main forever"}))
	r.await("both", func(s sim.Snapshot) bool { return isUp(s, "api") && isUp(s, "web-node") })
	c := r.runtime.Snapshot().Container("api", "main")
	if c.PodUID != string(pod.UID) {
		t.Errorf("the pod has the UID %s, and not %s", c.PodUID, pod.UID)
	}
	r.deletes("api", 2)
	r.await("its end", func(s sim.Snapshot) bool { return s.Sandbox("api") == nil })
	r.untilPrinted([]string{"pods"}, "web-node")
	if len(r.runtime.Snapshot().Sandboxes) != 1 {
		t.Error("another pod ended with it")
	}
}

// What the agent cannot do yet is not done wrongly: the pod waits, and says for what.
func TestAPodThatAsksForTooMuchWaits(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.binds(manifest("claims", "Always", nil, []string{"main forever"}) + "  volumes: [{name: d, persistentVolumeClaim: {claimName: d}}]\n")
	r.binds(manifest("plain", "Always", nil, []string{"main forever"}))
	r.await("the other", func(s sim.Snapshot) bool { return isUp(s, "plain") })
	r.untilPrinted([]string{"pods"}, "claims", "Pending", "spec.volumes[0].persistentVolumeClaim")
	if r.runtime.Snapshot().Sandbox("claims") != nil {
		t.Error("it was started")
	}
	r.deletes("claims", 0)
	r.eventually("the end of it", func() bool {
		for _, p := range r.agent.board.Now().Pods {
			if p.Pod.Name == "claims" {
				return false
			}
		}
		return true
	})
}

// The API server's word that a pod is over counts, also where nothing here knows of it.
func TestAPodThatIsOverIsNotRunAgain(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	pod := r.binds(manifest("job", "Never", nil, []string{"main forever"}))
	pod.Status.Phase = v1.PodSucceeded
	if _, err := r.api.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.binds(manifest("next", "Always", nil, []string{"main forever"}))
	r.await("the other", func(s sim.Snapshot) bool { return isUp(s, "next") })
	r.untilPrinted([]string{"pods"}, "job", "Succeeded")
	if r.runtime.Snapshot().Sandbox("job") != nil {
		t.Error("it was run")
	}
}

// A pod whose object goes at once ends, and so does one whose agent was not there to see it go.
func TestAPodWhoseDeletionWasForced(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.binds(manifest("one", "Always", nil, []string{"main forever"}))
	r.binds(manifest("two", "Always", nil, []string{"main forever"}))
	r.await("both", func(s sim.Snapshot) bool { return isUp(s, "one") && isUp(s, "two") })
	r.forgets("one")
	r.await("its end", func(s sim.Snapshot) bool { return s.Sandbox("one") == nil && isUp(s, "two") })
	r.stop()
	r.forgets("two")
	r.start(nil)
	r.await("the end of the other", func(s sim.Snapshot) bool { return len(s.Sandboxes) == 0 })
}
