package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// A pod that needs unsupported features waits, and reports the reason.
func TestAPodThatAsksForTooMuchWaits(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.binds(manifest("claims", "Always", nil, []string{"main forever"}) +
		"  volumes: [{name: d, fc: {targetWWNs: [50060e801049cfd1], lun: 0}}]\n")
	r.binds(manifest("plain", "Always", nil, []string{"main forever"}))
	r.await("the other", func(s sim.Snapshot) bool { return isUp(s, "plain") })
	r.untilPrinted([]string{"pods"}, "claims", "Pending", "spec.volumes[0].fc")
	if r.runtime.Snapshot().Sandbox("claims") != nil {
		t.Error("it was started")
	}
	r.deletes("claims", 0)
	r.eventually("the end of it", func() bool {
		for _, p := range r.agent.observatory.board.Now().Pods {
			if p.Pod.Name == "claims" {
				return false
			}
		}
		return true
	})
}

// kubectl debug adds a container to a running pod. The container is started, reported, kept across a restart of the agent, and
// ended with the pod.
func TestAContainerForDebugging(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.binds(manifest("api", "Always", nil, []string{"main forever"}))
	r.await("the pod", func(s sim.Snapshot) bool { return isUp(s, "api") })
	r.edits("api", func(p *v1.Pod) {
		common := v1.EphemeralContainerCommon{
			Name: "debugger", Image: "forever", ImagePullPolicy: v1.PullIfNotPresent, Stdin: true, TTY: true,
			TerminationMessagePath: v1.TerminationMessagePathDefault, TerminationMessagePolicy: v1.TerminationMessageReadFile,
		}
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{TargetContainerName: "main", EphemeralContainerCommon: common}}
	})
	sent := func(s v1.PodStatus) bool {
		all := s.EphemeralContainerStatuses
		return len(all) == 1 && all[0].Name == "debugger" && all[0].State.Running != nil && s.Phase == v1.PodRunning
	}
	r.eventually("it is told", func() bool { return sent(r.pod("api").Status) })
	c := r.runtime.Snapshot().Container("api", "debugger")
	options := c.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	main := r.runtime.Snapshot().Container("api", "main")
	if options.GetPid() != runtimeapi.NamespaceMode_TARGET || options.GetTargetId() != main.ID {
		t.Errorf("it sees the processes of %s %q, want those of %q", options.GetPid(), options.GetTargetId(), main.ID)
	}
	if !c.Config.GetStdin() || !c.Config.GetTty() {
		t.Error("nobody can attach to it")
	}
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "api", "Running")
	if again := r.runtime.Snapshot().Container("api", "debugger"); again.ID != c.ID || !again.Running() {
		t.Errorf("the next agent found %s, and left %+v", c.ID, again)
	}
	if err := r.runtime.Exit(string(r.pod("api").UID), "debugger", 1, "Error"); err != nil {
		t.Fatal(err)
	}
	r.eventually("its end is told", func() bool {
		all := r.pod("api").Status.EphemeralContainerStatuses
		return len(all) == 1 && all[0].State.Terminated != nil && all[0].RestartCount == 0
	})
	r.deletes("api", 2)
	r.await("its end", func(s sim.Snapshot) bool { return s.Sandbox("api") == nil && s.Container("api", "debugger") == nil })
}

// The API server's word that a pod is over counts, also where nothing here knows of it.
func TestFinishedPod_NeverRunsAgain(t *testing.T) {
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

// A pod whose object is deleted at once ends, even if the deletion happened while the agent was down.
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
