package pod

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/messages"
)

// greeting returns a pod of regular containers. The first has a post-start hook.
func greeting(regular int) *v1.Pod {
	pod := testPod(v1.RestartPolicyAlways, 0, regular)
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	return pod
}

func madeIn(a *alone, name string, state messages.ContainerState) messages.ContainerFact {
	return messages.ContainerFact{ID: name + "-1", Name: name, SandboxID: "s1", Image: "image", State: state, CreatedAt: a.now,
		StartedAt: a.now}
}

// ran returns the names of the containers that were ordered to run since.
func ran(a *alone) (names []string) {
	for _, r := range sentOf[messages.RunContainer](a.take()) {
		names = append(names, r.Container.Name)
	}
	return names
}

// Regular containers start in the spec's order. Each step lists the containers ordered to run after its message.
func TestRegularContainersStartOneAfterAnother(t *testing.T) {
	type step struct {
		hears any
		runs  []string
	}
	fresh := newReady(greeting(1))
	c0, c1 := madeIn(fresh, "c0", messages.ContainerRunning), madeIn(fresh, "c1", messages.ContainerRunning)
	over := c0
	over.State, over.ExitCode, over.FinishedAt = messages.ContainerExited, 1, fresh.now
	image := messages.ImageKey{UID: "u1", Container: "c0"}
	for name, steps := range map[string][]step{
		"an earlier one's hook": {
			{pulled("c2", "image"), nil},
			{pulled("c1", "image"), nil},
			{pulled("c0", "image"), []string{"c0"}},
			{hooking(c0), nil},
			{started(c0), []string{"c1"}},
			{started(c1), []string{"c2"}},
		},
		"an earlier one's pull": {
			{pulled("c1", "image"), nil},
			{messages.ImageAwaited{Key: image, Image: "image", Reason: messages.Reason{Code: messages.ReasonPulling}}, nil},
			{messages.ImageFailed{Key: image, Image: "image", Reason: messages.Reason{Code: messages.ReasonErrImagePull}},
				[]string{"c1"}},
			{messages.ImageAwaited{Key: image, Image: "image", Reason: messages.Reason{Code: messages.ReasonPulling}}, nil},
			{started(c1), nil},
			{pulled("c2", "image"), nil}, // the pull of the first is retried
			{messages.ImageFailed{Key: image, Image: "image", Reason: messages.Reason{Code: messages.ReasonImagePullBackOff}},
				[]string{"c2"}},
		},
		"an earlier one that is ended since its hook failed": {
			{pulled("c1", "image"), nil},
			{pulled("c0", "image"), []string{"c0"}},
			{hooking(c0), nil},
			{messages.ContainerEnded{Fact: over}, nil}, // the first restart is immediate
			{messages.ImageFailed{Key: messages.ImageKey{UID: "u1", Container: "c0", Attempt: 1}, Image: "image",
				Reason: messages.Reason{Code: messages.ReasonErrImagePull}}, []string{"c1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newReady(greeting(3))
			if pulls := sentOf[messages.PullImage](a.take()); len(pulls) < 3 {
				t.Errorf("%d images are asked for at once", len(pulls))
			}
			for i, s := range steps {
				if end, ok := s.hears.(messages.ContainerEnded); ok {
					s.hears = a.ended(end.Fact)
				}
				a.hears(s.hears)
				if got := ran(a); !slices.Equal(got, s.runs) {
					t.Errorf("step %d: %v run, want %v", i, got, s.runs)
				}
			}
		})
	}
}

// A failed start lets the next container start, and its retry waits for no other container.
func TestAFailedStartHoldsNobodyBack(t *testing.T) {
	a := newReady(greeting(2))
	a.hears(pulled("c1", "image"), pulled("c0", "image"))
	first := sentOf[messages.RunContainer](a.take())
	if len(first) != 1 || first[0].Container.Name != "c0" {
		t.Fatalf("told to run: %+v", first)
	}
	a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: first[0].Generation,
		Failed: &messages.Reason{Code: messages.ReasonCreateContainer}})
	if got := ran(a); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("then %v run", got)
	}
	a.hears(pulled("c0", "image"))
	a.passes(restarts.StepRetry.After(1, 0))
	a.observes(a.sandboxFacts())
	if got := ran(a); !slices.Equal(got, []string{"c0"}) {
		t.Errorf("when it is time %v run, while the second starts", got)
	}
}

// A running container is adopted at once, whatever the earlier ones do; the next one to start waits until they are adopted.
func TestAdoptionWaitsForNobody(t *testing.T) {
	a := newAlone(greeting(3))
	sandbox := messages.SandboxFact{ID: "s1", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}
	c0, c1 := madeIn(a, "c0", messages.ContainerRunning), madeIn(a, "c1", messages.ContainerRunning)
	a.observes([]messages.SandboxFact{sandbox}, c0, c1)
	a.hears(messages.VolumesMounted{UID: "u1"}, grouped(a.machine.Pod), pulled("c2", "image"))
	if got := ran(a); !slices.Equal(got, []string{"c0", "c1"}) {
		t.Errorf("adopted: %v", got)
	}
	a.hears(started(c1), hooking(c0))
	if got := ran(a); len(got) > 0 {
		t.Errorf("started while the hook runs: %v", got)
	}
	a.hears(started(c0))
	if got := ran(a); !slices.Equal(got, []string{"c2"}) {
		t.Errorf("started then: %v", got)
	}
}
