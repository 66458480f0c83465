//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// push puts the hello image into the registry under another name. Images of different versions differ.
func push(t *testing.T, s *stack.Stack, name, version string) {
	t.Helper()
	image, err := devimages.Image(devimages.Hello, func(c *v1.Config) { c.Labels["test"] = name + " " + version })
	must(t, err)
	must(t, s.Registry.Push(name, image))
}

// policyPod is a pod that sleeps, of that image; an empty policy is left out.
func policyPod(s *stack.Stack, name, image, policy string) string {
	if policy != "" {
		policy = ", imagePullPolicy: " + policy
	}
	return manifest(s, name, fmt.Sprintf(
		"terminationGracePeriodSeconds: 5\ncontainers: [{name: c, image: %q, args: [sleep]%s}]", image, policy))
}

// killed kills the first process of a container, and gives the one that takes its place.
func killed(t *testing.T, s *stack.Stack, pod, name string) *runtimeapi.Container {
	t.Helper()
	before := up(t, s, pod, name)
	pid, err := s.ContainerPID(t.Context(), before.Id)
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	var next *runtimeapi.Container
	await(t, func() error {
		if next = up(t, s, pod, name); next.Metadata.Attempt != before.Metadata.Attempt+1 {
			return fmt.Errorf("attempt %d of container %s of pod %s runs", next.Metadata.Attempt, name, pod)
		}
		return nil
	})
	return next
}

// digest is the image that a container was made of, as the runtime resolved it.
func digest(t *testing.T, s *stack.Stack, c *runtimeapi.Container) string {
	t.Helper()
	resp, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
	must(t, err)
	if resp.Status.ImageRef == "" {
		t.Errorf("container %s has no image reference", c.Id)
	}
	return resp.Status.ImageRef
}

// saysWaiting is for awaitPod: a container waits for that reason, with a message that has all these words.
func saysWaiting(reason string, words ...string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if err := waitsFor(reason)(p); err != nil {
			return err
		}
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason == reason {
				for _, word := range words {
					if !strings.Contains(w.Message, word) {
						return fmt.Errorf("the message of %s does not speak of %q: %s", reason, word, w.Message)
					}
				}
			}
		}
		return nil
	}
}

// Always asks the registry before each start and uses the tag's current image; IfNotPresent, the default of any tag but latest,
// asks once and keeps the image.
func TestImagePullPolicies(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		cases := []struct {
			name, ref, policy string
			always            bool
		}{
			{"present", "present:1", "IfNotPresent", false},
			{"tagged", "tagged:1", "", false},
			{"always", "always:1", "Always", true},
			{"latest", "latest:latest", "", true},
			{"kept", "kept:latest", "IfNotPresent", false},
		}
		for _, c := range cases {
			push(t, s, c.ref, "old")
			ref := strings.TrimSuffix(s.Registry.Addr+"/"+c.ref, ":latest") // a name without a tag means latest
			must(t, a.Write(c.name+".yaml", policyPod(s, c.name, ref, c.policy)))
		}
		for _, c := range cases {
			before := digest(t, s, up(t, s, c.name, "c"))
			push(t, s, c.ref, "new")
			after := digest(t, s, killed(t, s, c.name, "c"))
			want := 1
			if c.always {
				want = 2
			}
			if got := s.Registry.Pulls(c.ref); got != want {
				t.Errorf("%s: the image was pulled %d times for 2 starts, want %d", c.name, got, want)
			}
			if (before != after) != c.always {
				t.Errorf("%s: started of %s, and after the tag had moved of %s", c.name, before, after)
			}
		}
	})
}

// Image problems are reported with the kubelet's reasons, the image's name and the cause; the other containers run, and after the
// cause is gone the pod starts by itself.
func TestImagesThatCannotBeHad(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := agentWith(t, s, quick)
		missing, never := s.Registry.Ref("missing"), s.Registry.Ref("never")
		closed, err := devimages.StartRegistry(t.Context())
		must(t, err)
		away := closed.Ref("hello")
		must(t, closed.Close())
		push(t, s, "never", "")
		must(t, a.Write("missing.yaml", policyPod(s, "missing", missing, "")))
		must(t, a.Write("away.yaml", policyPod(s, "away", away, "")))
		must(t, a.Write("never.yaml", policyPod(s, "never", never, "Never")))
		must(t, a.Write("invalid.yaml", manifest(s, "invalid", `
terminationGracePeriodSeconds: 5
containers:
- {name: bad, image: "Not/A:Name"}
- {name: good, image: HELLO, args: [sleep]}`)))

		awaitPod(t, a, "missing", saysWaiting("ErrImagePull", missing, "not found"))
		awaitLogged(t, a, "a pod waits", onNode("missing"), "ErrImagePull", missing)
		awaitPod(t, a, "away", saysWaiting("ErrImagePull", away, "connection refused"))
		awaitPod(t, a, "never", saysWaiting("ErrImageNeverPull", never, "Never"))
		awaitPod(t, a, "invalid", saysWaiting("InvalidImageName", "Not/A:Name"))
		up(t, s, "invalid", "good")
		awaitPod(t, a, "missing", saysWaiting("ImagePullBackOff", missing, "not found"))
		awaitPod(t, a, "away", saysWaiting("ImagePullBackOff", away, "ErrImagePull"))
		for _, pod := range []string{"missing", "never", "away"} {
			awaitPod(t, a, pod, inPhase(corev1.PodPending))
			if all := containersOf(t, s, pod); len(all) > 0 {
				t.Errorf("pod %s has containers: %v", pod, all)
			}
		}
		if n := s.Registry.Pulls("never"); n != 0 {
			t.Errorf("with the policy Never, the registry was asked %d times", n)
		}

		push(t, s, "missing", "")
		back, err := devimages.StartRegistryOn(t.Context(), closed.Addr)
		must(t, err)
		defer func() { must(t, back.Close()) }()
		_, err = s.Pull(t.Context(), never) // as an operator does it, by hand
		must(t, err)
		up(t, s, "missing", "c")
		up(t, s, "away", "c")
		up(t, s, "never", "c")
		if n := s.Registry.Pulls("never"); n != 1 {
			t.Errorf("the image was pulled %d times besides once by hand", n-1)
		}
	})
}

// Many pods that wait for one image share one pull, whatever their policy; a pod with a present image does not wait.
func TestOnePullForManyPods(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		push(t, s, "shared", "")
		_, err := s.Pull(t.Context(), s.HelloImage())
		must(t, err)
		release := make(chan struct{})
		var asked atomic.Int32
		s.Registry.Intercept(func(r *http.Request) devimages.Fault {
			if !strings.HasPrefix(r.URL.Path, "/v2/shared/") {
				return devimages.Fault{}
			}
			if r.Method == http.MethodHead {
				asked.Add(1)
			}
			return devimages.Fault{Until: release}
		})
		a := s.Agent(t)
		const pods = 8
		for i := range pods {
			name := fmt.Sprintf("p%02d", i)
			must(t, a.Write(name+".yaml", policyPod(s, name, s.Registry.Ref("shared"), []string{"", "Always"}[i%2])))
		}
		must(t, a.Write("other.yaml", policyPod(s, "other", s.HelloImage(), "IfNotPresent")))
		// A pod asks for its image before its sandbox: those that have one wait for the pull.
		for i := range pods {
			awaitPod(t, a, fmt.Sprintf("p%02d", i), func(p *corev1.Pod) error {
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
						return nil
					}
				}
				return fmt.Errorf("pod %s has no sandbox: %+v", p.Name, p.Status)
			})
		}
		up(t, s, "other", "c")
		close(release)
		running(t, s, pods+1)
		if n, m := asked.Load(), s.Registry.Pulls("shared"); n != 1 || m != 1 {
			t.Errorf("%d pods had %d pulls, of which %d were answered", pods, n, m)
		}
	})
}

// An unused image is removed when its file system is used beyond the threshold; images of containers and of sandboxes stay.
func TestUnusedImagesAreCollected(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		push(t, s, "unused:1", "1")
		push(t, s, "used:1", "1")
		unused, used := s.Registry.Addr+"/unused:1", s.Registry.Addr+"/used:1"
		first := agentWith(t, s, quick)
		must(t, first.Write("web.yaml", policyPod(s, "web", used, "IfNotPresent")))
		up(t, s, "web", "c")
		_, err := s.Pull(t.Context(), unused)
		must(t, err)
		if code, err := first.Term(); err != nil || code != 0 {
			t.Fatalf("the agent ended with %d: %v", code, err)
		}
		a := first
		a.Config["imageGCHighThresholdPercent"], a.Config["imageGCLowThresholdPercent"] = 1, 0
		a.Config["imageMinimumGCAge"] = "1ns"
		must(t, a.Start())
		there := func(ref string) bool {
			resp, err := s.CRI().ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{
				Image: &runtimeapi.ImageSpec{Image: ref}})
			must(t, err)
			return resp.GetImage() != nil
		}
		await(t, func() error {
			if there(unused) {
				return fmt.Errorf("the unused image stays: %s", a.Log())
			}
			return nil
		})
		await(t, func() error {
			if !strings.Contains(a.Log(), "could not free enough space on the image disk") {
				return fmt.Errorf("the collection does not end: %s", a.Log())
			}
			return nil
		})
		for _, ref := range []string{used, s.PauseImage()} {
			if !there(ref) {
				t.Errorf("%s was removed", ref)
			}
		}
		killed(t, s, "web", "c")
		if n := s.Registry.Pulls("used:1"); n != 1 {
			t.Errorf("the used image was pulled %d times", n)
		}
	})
}
