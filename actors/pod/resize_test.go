package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

const mi = 1 << 20

// resizable returns a world with a running pod of the API server, with two containers of 4 MiB each.
func resizable(t *testing.T, policies ...v1.ContainerResizePolicy) *world {
	t.Helper()
	pod := cloudPod(v1.RestartPolicyAlways, 0, 2)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources, pod.Spec.Containers[i].ResizePolicy = limitedTo(4*mi), policies
	}
	w := newWorld(pod)
	w.carry()
	w.restart()
	w.settle()
	w.records = nil
	return w
}

// allocate sends a resize that pods has admitted.
func (w *world) allocate(bytes ...int64) {
	w.resized = true
	w.edit(func(s *v1.PodSpec) {
		for i, n := range bytes {
			s.Containers[i].Resources = limitedTo(n * mi)
		}
	})
	w.pod.Generation++
}

func conditionOf(s *v1.PodStatus, t v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

func (w *world) limits() (out []int64) {
	for _, c := range w.pod.Spec.Containers {
		for _, f := range w.containers {
			if f.Name == c.Name && f.State == messages.ContainerRunning {
				out = append(out, f.Resources.MemoryLimit/mi)
			}
		}
	}
	return out
}

func (w *world) recorded(prefix string) (out []string) {
	for _, r := range w.records {
		if strings.HasPrefix(r.Reason, prefix) {
			out = append(out, r.Reason)
		}
	}
	return out
}

// Containers are changed in place, first those that shrink. Meanwhile the cgroup is as wide as both sizes. The status contains
// the allocation and the resources of each.
func TestAResizeInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		to     []int64
		order  []string
		groups []int64
	}{
		"both get more":        {[]int64{8, 6}, []string{"c0", "c1"}, []int64{14, 14}},
		"both get less":        {[]int64{2, 1}, []string{"c0", "c1"}, []int64{3}},
		"one more, one less":   {[]int64{9, 1}, []string{"c1", "c0"}, []int64{13, 10}},
		"one gets more":        {[]int64{4, 5}, []string{"c1"}, []int64{9, 9}},
		"only the second less": {[]int64{4, 3}, []string{"c1"}, []int64{7}},
	} {
		t.Run(name, func(t *testing.T) {
			w := resizable(t)
			w.groups = nil
			w.watch = func(s *v1.PodStatus) {
				for i, want := range c.to { // a resize reported as complete is in effect
					if conditionOf(s, v1.PodResizeInProgress) == nil && s.ObservedGeneration == w.pod.Generation &&
						s.ContainerStatuses[i].Resources.Limits.Memory().Value() != want*mi {
						t.Errorf("no resize is in progress, and the status tells of %+v", s.ContainerStatuses[i].Resources)
					}
				}
			}
			w.allocate(c.to...)
			w.settle()
			check(t, w)
			if got := w.limits(); !slices.Equal(got, c.to) || !slices.Equal(w.resizes, c.order) || len(w.stops) > 0 {
				t.Errorf("they have %v, changed in the order %v, stopped %v", got, w.resizes, w.stops)
			}
			var groups []int64
			for _, p := range w.groups {
				w.checkGroup(p)
				if n := w.limit / mi; len(groups) == 0 || groups[len(groups)-1] != n {
					groups = append(groups, n)
				}
			}
			if want := slices.Compact(slices.Clone(c.groups)); !slices.Equal(groups, want) {
				t.Errorf("its cgroup had %v, want %v", groups, want)
			}
			if got := w.recorded("Resize"); !slices.Equal(got, []string{"ResizeStarted", "ResizeCompleted"}) {
				t.Errorf("events %v", got)
			}
			if !slices.Equal(w.informed, slices.Compact(slices.Clone(w.groups))) { // once for each change of its cgroup
				t.Errorf("the runtime was told %d times, its cgroup changed %d times", len(w.informed), len(w.groups))
			}
			for i, s := range w.status.ContainerStatuses {
				if s.AllocatedResources.Memory().Value() != c.to[i]*mi || s.RestartCount != 0 {
					t.Errorf("%s: allocated %v, restarted %d times", s.Name, s.AllocatedResources, s.RestartCount)
				}
			}
		})
	}
}

// If resizePolicy requires it, a container is restarted: at once, however often it failed before, and without an update of the
// old one at the runtime.
func TestAResizeThatRestarts(t *testing.T) {
	w := resizable(t, v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer})
	w.allocate(8, 4)
	at := w.now
	w.settle()
	check(t, w)
	f := w.containers[0]
	if f.Name != "c0" || f.Attempt != 1 || !slices.Equal(w.stops, []string{"c0"}) || len(w.resizes) > 0 {
		t.Errorf("the newest is %+v, stopped %v, changed %v", f, w.stops, w.resizes)
	}
	if !slices.Equal(w.limits(), []int64{8, 4}) || f.CreatedAt.Sub(at) > w.set.BackOff.First/2 {
		t.Errorf("they have %v, the new one was made after %s", w.limits(), f.CreatedAt.Sub(at))
	}
	w.restart() // an actor that restarts uses the resources that the container carries
	w.settle()
	if check(t, w); len(w.stops) > 1 {
		t.Errorf("it was restarted again: %v", w.stops)
	}
}

// pooled returns a world with a pod of the API server that has its own memory limit, with two containers: c0 has 4 MiB, and c1
// has the pod's.
func pooled(bytes int64, policies ...v1.ContainerResizePolicy) *world {
	pod := cloudPod(v1.RestartPolicyAlways, 0, 2)
	pod.Spec.Resources = new(limitedTo(bytes * mi))
	pod.Spec.Containers[0].Resources = limitedTo(4 * mi)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ResizePolicy = policies
	}
	w := newWorld(pod)
	w.carry()
	w.restart()
	w.settle()
	w.records = nil
	return w
}

// A resize of a pod's own resources changes the containers that have its limits, and leaves the others alone. Meanwhile its
// cgroup is as wide as both sizes. The status contains the pod's resources, and each container's own.
func TestAResizeOfAPodsOwnResources(t *testing.T) {
	for to, groups := range map[int64][]int64{20: {20}, 6: {10, 6}} {
		w := pooled(10)
		if got := w.status.Resources.Limits.Memory().Value(); got != 10*mi {
			t.Errorf("its status tells of %d bytes", got)
		}
		w.groups, w.resized = nil, true
		w.watch = func(s *v1.PodStatus) {
			if conditionOf(s, v1.PodResizeInProgress) == nil && s.ObservedGeneration == w.pod.Generation &&
				s.Resources.Limits.Memory().Value() != to*mi {
				t.Errorf("no resize is in progress, and the status tells of %+v", s.Resources)
			}
		}
		w.edit(func(s *v1.PodSpec) { s.Resources = new(limitedTo(to * mi)) })
		w.pod.Generation++
		w.settle()
		check(t, w)
		if got := w.limits(); !slices.Equal(got, []int64{4, to}) || !slices.Equal(w.resizes, []string{"c1"}) || len(w.stops) > 0 {
			t.Errorf("they have %v, changed %v, stopped %v", got, w.resizes, w.stops)
		}
		var had []int64
		for _, p := range w.groups {
			had = append(had, p.Spec.Resources.Limits.Memory().Value()/mi)
		}
		if had = slices.Compact(had); !slices.Equal(had, groups) {
			t.Errorf("its cgroup had %v, want %v", had, groups)
		}
		s := w.status
		if s.AllocatedResources.Memory().Value() != to*mi || s.Resources.Limits.Memory().Value() != to*mi ||
			s.ContainerStatuses[0].Resources.Limits.Memory().Value() != 4*mi || len(s.ContainerStatuses[1].Resources.Limits) > 0 {
			t.Errorf("the status tells of %+v, allocated %v, and of %+v", s.Resources, s.AllocatedResources, s.ContainerStatuses)
		}
		if got := w.recorded("Resize"); !slices.Equal(got, []string{"ResizeStarted", "ResizeCompleted"}) {
			t.Errorf("events %v", got)
		}
	}
}

// Additional limits of a pod reach its running containers, adopted ones included.
func TestAResizeAddsThePodsOwnLimits(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		pod := cloudPod(v1.RestartPolicyAlways, 0, 2)
		pod.Spec.Containers[0].Resources = limitedTo(4 * mi)
		w := newWorld(pod)
		w.carry()
		w.restart()
		w.settle()
		if adopted {
			w.restart()
			w.settle()
		}
		w.resized = true
		w.edit(func(s *v1.PodSpec) { s.Resources = new(limitedTo(20 * mi)) })
		w.pod.Generation++
		w.settle()
		if check(t, w); !slices.Equal(w.limits(), []int64{4, 20}) || !slices.Equal(w.resizes, []string{"c1"}) {
			t.Errorf("adopted %v: they have %v, changed %v", adopted, w.limits(), w.resizes)
		}
	}
}

// Containers of an earlier release carry nothing of their pod: the pod's present resources count.
func TestContainersOfAnEarlierReleaseAreLeftAlone(t *testing.T) {
	w := pooled(10, v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer})
	for i := range w.containers {
		delete(w.containers[i].Annotations, cri.AnnotationPodResources)
	}
	w.restart()
	w.settle()
	if check(t, w); len(w.stops)+len(w.resizes) > 0 || w.status.Resources.Limits.Memory().Value() != 10*mi {
		t.Errorf("stopped %v, changed %v; it tells %+v", w.stops, w.resizes, w.status.Resources)
	}
}

// An agent that was killed before it reported an allocated resize reports it as in progress.
func TestAResizeThatWasNotReportedGoesOn(t *testing.T) {
	w := pooled(10)
	w.resized = true
	last := w.status.DeepCopy()
	w.pod = w.pod.DeepCopy()
	w.pod.Spec.Resources = new(limitedTo(20 * mi))
	w.pod.Generation++
	w.last = last
	w.watch = func(s *v1.PodStatus) {
		if s.ObservedGeneration == w.pod.Generation && conditionOf(s, v1.PodResizeInProgress) == nil && w.limits()[1] != 20 {
			t.Errorf("it is told as done, and the containers have %v", w.limits())
		}
	}
	w.restart()
	w.settle()
	if check(t, w); !slices.Equal(w.limits(), []int64{4, 20}) || !slices.Equal(w.recorded("Resize"), []string{"ResizeCompleted"}) {
		t.Errorf("they have %v, events %v", w.limits(), w.records)
	}
}

// A container that has the pod's limits is restarted for them if its resizePolicy requires it, once.
func TestPodLevelResize_RestartsContainer(t *testing.T) {
	w := pooled(10, v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer})
	w.resized = true
	w.edit(func(s *v1.PodSpec) { s.Resources = new(limitedTo(20 * mi)) })
	w.settle()
	w.restart()
	w.settle()
	check(t, w)
	if !slices.Equal(w.limits(), []int64{4, 20}) || !slices.Equal(w.stops, []string{"c1"}) {
		t.Errorf("they have %v, stopped %v", w.limits(), w.stops)
	}
}

// A refusal of the runtime is reported, retried, and ends when the resize is withdrawn.
func TestAResizeThatFails(t *testing.T) {
	w := resizable(t)
	w.refuses = 1000
	w.allocate(2, 4)
	for range 30 {
		if len(w.pending) > 0 {
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
		}
	}
	c := conditionOf(w.status, v1.PodResizeInProgress)
	if c == nil || c.Reason != v1.PodReasonError || !strings.Contains(c.Message, "does not want") ||
		c.ObservedGeneration != w.pod.Generation {
		t.Fatalf("the condition is %+v", c)
	}
	tries := len(w.resizes)
	w.now = w.nextTime()
	w.step(nil)
	if len(w.resizes) != tries+1 || !slices.Equal(w.recorded("ResizeError"), []string{"ResizeError"}) {
		t.Errorf("tried %d times, then %d; events %v", tries, len(w.resizes), w.records)
	}
	w.refuses = 0
	w.allocate(4, 4)
	w.settle()
	if check(t, w); conditionOf(w.status, v1.PodResizeInProgress) != nil || !slices.Equal(w.limits(), []int64{4, 4}) {
		t.Errorf("it has %v, and tells %+v", w.limits(), w.status.Conditions)
	}
}

// Each try of a resize is counted, from its begin. The next one begins when it is due.
func TestTriesAtAResizeAreCounted(t *testing.T) {
	w := resizable(t)
	deliver := func(after time.Duration) { // the request is answered after that time
		for range 10 {
			if len(w.pending) == 0 {
				return
			}
			w.now = w.now.Add(after)
			after = 0
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
		}
	}
	w.refuses = 1
	w.allocate(4, 2)
	deliver(0)
	w.now = w.nextTime()
	deliver(0)
	w.step(nil) // it is retried
	deliver(3 * time.Second)
	want := []ResizeTried{{false, 0}, {true, 3 * time.Second}}
	if !slices.Equal(w.tried, want) || !slices.Equal(w.limits(), []int64{4, 2}) {
		t.Errorf("tried %v, want %v; it has %v", w.tried, want, w.limits())
	}

	// A cgroup that cannot be widened fails the resize, too.
	w.tried = nil
	w.now = w.now.Add(time.Minute)
	w.allocate(8, 2)
	w.step(w.pending[0])
	w.now = w.now.Add(2 * time.Second)
	w.step(messages.PodCgroupFailed{UID: string(w.pod.UID), Reason: messages.Reason{Message: "it is full"}})
	if want := []ResizeTried{{false, 2 * time.Second}}; !slices.Equal(w.tried, want) {
		t.Errorf("tried %v, want %v", w.tried, want)
	}
	w.settle()
	if check(t, w); len(w.tried) != 2 || !w.tried[1].Success {
		t.Errorf("tried %v", w.tried)
	}

	// A resize that began before a restart of the actor is counted as well.
	w.refuses, w.tried = 1, nil
	w.restart()
	w.settle()
	if check(t, w); len(w.tried) != 2 || w.tried[0].Success || !w.tried[1].Success {
		t.Errorf("after a restart of its actor: tried %v", w.tried)
	}
	for _, tried := range w.tried {
		if tried.Took < 0 || tried.Took > time.Hour {
			t.Errorf("it took %s", tried.Took)
		}
	}
}

// If the actor is killed at any step of a resize, its next life completes it.
func TestAResizeOutlivesItsActor(t *testing.T) {
	for step := range 12 {
		w := resizable(t)
		w.allocate(9, 1)
		for range step {
			if len(w.pending) > 0 {
				m := w.pending[0]
				w.pending = w.pending[1:]
				w.step(m)
			}
		}
		w.restart()
		w.last = w.status
		w.settle()
		check(t, w)
		if c := conditionOf(w.status, v1.PodResizeInProgress); c != nil || !slices.Equal(w.limits(), []int64{9, 1}) ||
			len(w.stops) > 0 || w.limit != 10*mi {
			t.Errorf("killed after %d messages: they have %v, its cgroup %d, stopped %v, %+v", step, w.limits(), w.limit/mi,
				w.stops, c)
		}
	}
}

// A pending resize is reported as long as it lasts, and has no effect.
func TestAPendingResizeIsReported(t *testing.T) {
	w := resizable(t)
	m := w.desired()
	m.Generation, m.Pending = m.Generation+1, &messages.PendingResize{Reason: v1.PodReasonDeferred, Message: "too little"}
	w.step(m)
	c := conditionOf(w.status, v1.PodResizePending)
	if c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonDeferred || c.Message != "too little" {
		t.Errorf("it tells %+v", c)
	}
	m.Generation, m.Pending = m.Generation+1, nil
	if w.step(m); conditionOf(w.status, v1.PodResizePending) != nil || len(w.resizes) > 0 {
		t.Errorf("it tells %+v, changed %v", w.status.Conditions, w.resizes)
	}
}

// The kernel refuses a limit of CPU above the limit of the parent group: a container waits for the group, as long as that can be
// changed.
func TestTheGroupComesFirst(t *testing.T) {
	w := resizable(t)
	w.allocate(8, 4)
	m := w.pending[len(w.pending)-1]
	w.pending = nil
	if w.step(m); len(w.resizes) > 0 {
		t.Fatalf("changed %v before the cgroup", w.resizes)
	}
	w.pending = nil // the answer is lost
	w.step(messages.PodCgroupFailed{UID: "u1", Reason: messages.Reason{Code: "FailedCreatePodContainer", Message: "no"}})
	c := conditionOf(w.status, v1.PodResizeInProgress)
	if c == nil || c.Message != "no" || !slices.Equal(w.resizes, []string{"c0"}) {
		t.Errorf("it tells %+v, changed %v", c, w.resizes)
	}
}

// A resize that the runtime refuses for the pod as a whole changes no container; it is reported, and retried.
func TestAResizeThatTheRuntimeRefuses(t *testing.T) {
	w := resizable(t)
	w.refusesPod = 2
	refused := false
	w.watch = func(s *v1.PodStatus) {
		if c := conditionOf(s, v1.PodResizeInProgress); c != nil && strings.Contains(c.Message, "a plugin does not want it") {
			refused = true
			if len(w.resizes) > 0 {
				t.Errorf("containers were changed: %v", w.resizes)
			}
		}
	}
	w.allocate(8, 6)
	w.settle()
	check(t, w)
	if got := w.recorded("Resize"); !refused || !slices.Equal(got, []string{"ResizeStarted", "ResizeError", "ResizeCompleted"}) {
		t.Errorf("refused %t, events %v", refused, got)
	}
	if !slices.Equal(w.limits(), []int64{8, 6}) || len(w.informed) != 4 { // two refusals, before the containers and after them
		t.Errorf("they have %v, the runtime was told %d times", w.limits(), len(w.informed))
	}
}

// A container that was ended for lack of memory, and is in back-off, gets its new size with its next start. The pod's cgroup,
// which limits it as well, has the new size before (kubernetes/kubernetes#138760).
func TestResize_ContainerInBackOff(t *testing.T) {
	w := resizable(t)
	crash := true
	w.exit = func(name string, _ uint32) (int32, bool) { return 137, crash && name == "c0" }
	w.drain()
	if s := w.status.ContainerStatuses[0].State; s.Waiting == nil || s.Waiting.Reason != messages.ReasonCrashLoopBackOff {
		t.Fatalf("c0 is %+v, want a back-off", s)
	}
	attempts := len(w.containers)
	w.allocate(16, 4)
	w.drain()
	if c := conditionOf(w.status, v1.PodResizeInProgress); w.limit != 20*mi || c != nil || len(w.containers) != attempts {
		t.Errorf("the cgroup has %d MiB, %+v, %d containers more, want 20 MiB, no resize in progress and no start", w.limit/mi, c,
			len(w.containers)-attempts)
	}
	crash = false
	w.settle()
	check(t, w)
	if got := w.limits(); !slices.Equal(got, []int64{16, 4}) {
		t.Errorf("got limits %v, want those of the allocation", got)
	}
}
