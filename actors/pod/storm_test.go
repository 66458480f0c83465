package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Messages arrive in any order, lost and duplicated; the actor is killed, the sandbox lost, the pod ended at any moment. No
// container of a terminated pod starts, none starts twice, and every transition is in the table. After the storm the pod reaches
// its proper state: it is never stuck.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure,
			v1.RestartPolicyNever}).Draw(t, "policy")
		pod := testPod(policy, rapid.IntRange(0, 2).Draw(t, "init"), rapid.IntRange(1, 3).Draw(t, "regular"))
		if len(pod.Spec.InitContainers) > 0 && rapid.Bool().Draw(t, "sidecar") {
			pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		drawPolicies(t, pod)
		drawProbes(t, pod)
		if rapid.Bool().Draw(t, "image volume") {
			pod.Spec.Volumes = []v1.Volume{{Name: "files", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "files:1"}}}}
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "files", MountPath: "/files"}}
		}
		if rapid.Bool().Draw(t, "cloud") {
			pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
			drawResources(t, pod)
			if rapid.Bool().Draw(t, "claims") {
				pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}}
			}
		}
		w := newWorld(pod)
		if objectset.OfAPIServer(pod) {
			w.carry()
		}
		crashes := rapid.IntRange(0, 3).Draw(t, "crashes")
		w.exit = func(name string, attempt uint32) (int32, bool) {
			if name[0] == 'i' && !w.sidecarNamed(name) {
				return 0, true
			}
			return 1, int(attempt) < crashes
		}
		w.brief = rapid.Bool().Draw(t, "brief")
		w.step(nil)
		for range rapid.IntRange(0, 60).Draw(t, "calm steps") { // otherwise few storms meet a running pod
			if w.live(); len(w.pending) > 0 {
				m := w.pending[0]
				w.pending = w.pending[1:]
				w.step(m)
			}
		}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			storm(t, w)
		}
		w.halfway, w.refuses, w.refusesPod = 0, 0, 0
		w.exit = func(name string, attempt uint32) (int32, bool) {
			return 0, name[0] == 'i' && !w.sidecarNamed(name)
		}
		w.deaf, w.blind = false, false // no more losses, except the outcome of one start
		if w.offline != nil {
			w.network(true)
		}
		w.settle()
		w.settle()
		check(t, w)
		if wrong := afterTheStorm(w); wrong != "" {
			t.Fatalf("%s: %+v\nafter\n%s", wrong, w.machine.Inspect(), strings.Join(w.trace, "\n"))
		}
	})
}

// drawPolicies gives some containers their own restart policies (KEP-5307).
func drawPolicies(t *rapid.T, pod *v1.Pod) {
	for i := range len(pod.Spec.InitContainers) + len(pod.Spec.Containers) {
		policies := []v1.ContainerRestartPolicy{"", "", v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever}
		c := (*v1.Container)(nil)
		if at := i - len(pod.Spec.InitContainers); at < 0 {
			c = &pod.Spec.InitContainers[i]
		} else {
			c, policies = &pod.Spec.Containers[at], append(policies, v1.ContainerRestartPolicyAlways)
		}
		policy := rapid.SampledFrom(policies).Draw(t, "own policy")
		sidecar := c.RestartPolicy != nil
		if policy == "" {
			continue
		}
		if !sidecar {
			c.RestartPolicy = &policy
		}
		switch rapid.IntRange(0, 3).Draw(t, "rules") {
		case 1:
			if !sidecar {
				c.RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestart, 1)
			}
		case 2, 3: // KEP-5532
			c.RestartPolicyRules = rule(v1.ContainerRestartRuleActionRestartAllContainers, 1)
		}
	}
}

// staying returns the regular containers that restart after any end.
func staying(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; translate.RestartPolicy(&pod.Spec, c) == v1.RestartPolicyAlways {
			names = append(names, c.Name)
		}
	}
	return names
}

// storm is one event, good or bad.
func storm(t *rapid.T, w *world) {
	switch rapid.SampledFrom([]string{
		"deliver", "deliver", "deliver", "any", "lose", "double", "time", "live", "heeded", "probe", "probe",
		"fall", "prober", "restart", "sandbox", "power", "halfway", "unknown", "removed", "address", "edit", "deaf", "blind", "brief",
		"debug", "network", "fail", "end", "resize", "resize", "refuse",
	}).Draw(t, "event") {
	case "deliver":
		if len(w.pending) > 0 {
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
		}
	case "any", "double":
		if n := len(w.pending); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "which")
			m := w.pending[i]
			if rapid.Bool().Draw(t, "keep") {
				w.pending = slices.Delete(w.pending, i, i+1)
			}
			w.step(m)
		}
	case "lose":
		if len(w.pending) > 0 {
			w.lose(w.pending[0])
			w.pending = w.pending[1:]
		}
	case "time":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
		w.step(nil)
	case "live":
		w.live()
	case "heeded": // stopped containers end well from now on, or do not
		w.heeded = rapid.SampledFrom([]int32{0, 1, 143}).Draw(t, "code")
	case "probe":
		probeStorm(t, w)
	case "fall": // of the actor of a container
		if names := slices.Sorted(maps.Keys(w.actors)); len(names) > 0 {
			if name := rapid.SampledFrom(names).Draw(t, "actor"); w.present(name) {
				w.fall(name)
			}
		}
	case "prober": // its actor fails; the disk keeps its state
		w.watched = nil
		w.send(messages.ServiceStarted{Service: messages.Prober})
	case "restart":
		w.restart()
	case "sandbox":
		if len(w.sandboxes) > 0 {
			w.sandboxes[0].Ready = false
			w.send(w.observed())
		}
	case "power": // the machine goes off and on: sandboxes are dead, created containers stay created
		for i := range w.sandboxes {
			w.sandboxes[i].Ready = false
			w.killIn(w.sandboxes[i].ID)
		}
		w.restart()
	case "halfway": // the agent dies between the creation of a container and its start, or the start fails
		w.halfway = rapid.IntRange(1, 3).Draw(t, "starts")
	case "address": // the network loses the pod
		if len(w.sandboxes) > 0 && !w.sandboxes[0].HostNet {
			w.sandboxes[0].IPs, w.sandboxes[0].NoIP = nil, w.sandboxes[0].Ready
			w.send(w.observed())
		}
	case "edit":
		w.edit(func(s *v1.PodSpec) {
			if rapid.Bool().Draw(t, "network") {
				s.HostNetwork = !s.HostNetwork
				return
			}
			s.Containers[0].Image += "'"
		})
	case "blind":
		w.blind = true
	case "resize":
		resizeStorm(t, w)
	case "refuse": // the next changes of resources are refused, or not
		w.refuses, w.refusesPod = rapid.IntRange(0, 3).Draw(t, "refusals"), rapid.IntRange(0, 2).Draw(t, "refusals of the pod")
	case "debug":
		if len(w.pod.Spec.EphemeralContainers) < 2 {
			target := rapid.SampledFrom([]string{"", "c0"}).Draw(t, "target")
			w.edits, w.pod = w.edits+1, debugged(w.pod, fmt.Sprintf("debug%d", len(w.pod.Spec.EphemeralContainers)), target)
			w.send(w.desired())
		}
	case "brief":
		w.brief = true
	case "network":
		w.network(w.offline != nil)
	case "fail":
		if w.final == nil {
			w.preempt()
		}
	case "deaf":
		w.deaf = true
	case "unknown", "removed":
		someone(t, w)
	case "end":
		if w.ending == nil && rapid.IntRange(0, 4).Draw(t, "really") == 0 {
			w.ending = &messages.Ending{Reason: "storm"}
			w.send(w.desired())
		} else if w.ending != nil {
			shorter := *w.ending
			shorter.Grace = new(int64(rapid.IntRange(0, 9).Draw(t, "grace")))
			w.ending = &shorter
			w.send(w.desired())
		}
	}
}

// someone is a runtime that loses the state of a container, or a user who removes one.
func someone(t *rapid.T, w *world) {
	n := len(w.containers)
	if n == 0 {
		return
	}
	i := rapid.IntRange(0, n-1).Draw(t, "container")
	switch c := &w.containers[i]; {
	case rapid.Bool().Draw(t, "remove"):
		w.removed[fmt.Sprint(c.Name, c.Attempt)] = true
		w.ends[c.Name]++
		w.containers = slices.Delete(w.containers, i, i+1)
	case c.State == messages.ContainerRunning:
		c.State = messages.ContainerUnknown
	}
	w.send(w.observed())
}

// afterTheStorm describes the fault of the pod when all is quiet again, or returns "".
func afterTheStorm(w *world) string {
	phase := w.machine.Phase()
	if name := recordedTooOften(w); name != "" {
		return fmt.Sprintf("%s ended %d times, and its back-off is told more often: %v", name, w.ends[name], w.records)
	}
	switch {
	case w.ending != nil:
		if phase != Finished || len(w.containers)+len(w.sandboxes) > 0 || w.ended == nil || !w.ended.Gone {
			return fmt.Sprintf("an ended pod is %s with %v and %v", phase, w.containers, w.sandboxes)
		}
	case !equality.Semantic.DeepEqual(w.status, w.machine.reported.Status):
		return fmt.Sprintf("others know of the status %+v, and it is %+v", w.status, w.machine.reported.Status)
	case w.fail != nil:
		if phase != Finished || len(w.runningNames()) > 0 {
			return fmt.Sprintf("a pod that has to go is %s, running %v", phase, w.runningNames())
		}
	case phase == Finished:
		failedFirst := slices.ContainsFunc(w.pod.Spec.InitContainers,
			func(c v1.Container) bool {
				return translate.RestartPolicy(&w.pod.Spec,
					&c) == v1.RestartPolicyNever
			}) // a lost one has failed
		if len(staying(w.pod)) > 0 && !failedFirst || len(w.runningNames()) > 0 {
			return fmt.Sprintf("it finished where %v stay, running %v", staying(w.pod), w.runningNames())
		}
	case phase == Running:
		if s := w.sandboxes[0]; s.HostNet != w.pod.Spec.HostNetwork || s.NoIP {
			return fmt.Sprintf("its sandbox is %+v", s)
		}
		if wrong := w.mixedRounds(); wrong != "" {
			return wrong
		}
		for _, c := range w.pod.Spec.Containers {
			stay := staying(w.pod)
			if s := w.status; len(stay) == len(w.pod.Spec.Containers) && !allReady(s) {
				return fmt.Sprintf("it is not ready: %+v", s)
			}
			if slices.Contains(stay, c.Name) && !slices.Contains(w.runningNames(), c.Name) {
				return c.Name + " does not run"
			}
			for _, f := range w.containers {
				if wrong := w.unlike(c, f); wrong != "" {
					return wrong
				}
				if f.Name == c.Name && f.State == messages.ContainerRunning &&
					(f.Image != c.Image || f.SandboxID != w.sandboxes[0].ID) {
					return fmt.Sprintf("%s runs %s in %s, wanted is %s in %s", c.Name, f.Image, f.SandboxID, c.Image,
						w.sandboxes[0].ID)
				}
			}
		}
	default:
		return "it is stuck"
	}
	return ""
}
