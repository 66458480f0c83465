//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// pullBig has the runtime pull an image that takes so many mebibytes twice.
func pullBig(t *testing.T, s *stack.Stack, name string, mebibytes int) string {
	t.Helper()
	ref, err := s.PullBig(t.Context(), name, mebibytes)
	must(t, err)
	return ref
}

func hasImage(t *testing.T, s *stack.Stack, ref string) bool {
	t.Helper()
	has, err := s.HasImage(t.Context(), ref)
	must(t, err)
	return has
}

// survey has the agent look at its images: one that it has never seen counts as too new to go.
func survey(t *testing.T, a *stack.Agent) {
	t.Helper()
	_, err := a.Command(t.Context(), "images")
	must(t, err)
}

// imagesShort is an agent that has to act where images are once there are less than 100 MiB of them left.
func imagesShort(t *testing.T, s *stack.Stack) *stack.Agent {
	t.Helper()
	return short(t, s, map[string]string{"imagefs.available": "100Mi"}, func(a *stack.Agent) {
		a.Config["imageGCHighThresholdPercent"] = 100 // nothing is collected before it has to be
		a.Config["imageMinimumGCAge"] = "1ns"
	})
}

// A node whose file system of images is short of space because of images alone recovers by itself and admits pods again. Dead
// containers are removed, then unused images, including one that only such a container used; no pod is ended.
func TestImagesGoBeforePods(t *testing.T) {
	s := stack.Start(t, stack.Options{DiskMiB: 200})
	a := imagesShort(t, s)
	push(t, s, "once", "1")
	once := s.Registry.Ref("once")
	must(t, a.Write("over.yaml", manifest(s, "over",
		fmt.Sprintf("restartPolicy: Never\ncontainers: [{name: c, image: %q, args: [exit, \"0\"]}]", once))))
	must(t, a.Write("small.yaml", policyPod(s, "small", s.HelloImage(), "IfNotPresent")))
	awaitPod(t, a, "over", inPhase(corev1.PodSucceeded))
	awaitPod(t, a, "small", ready)
	was := up(t, s, "small", "c").Id
	unused := pullBig(t, s, "unused", 28)
	survey(t, a)
	p := cross(t, a)
	pullBig(t, s, "late", 28) // an image being pulled cannot be removed yet
	p.ends(corev1.NodeDiskPressure, "met imagefs.available", "containers", "images")
	if hasImage(t, s, unused) || hasImage(t, s, once) || !hasImage(t, s, s.HelloImage()) || !hasImage(t, s, s.PauseImage()) {
		out, err := a.Command(t.Context(), "images")
		t.Errorf("the images that are left are not those that are used: %s, %v", out, err)
	}
	if left := containersOf(t, s, "over"); len(left) > 0 {
		t.Errorf("a dead container is still there: %v", left)
	}
	must(t, a.Write("after.yaml", policyPod(s, "after", s.HelloImage(), "IfNotPresent")))
	awaitPod(t, a, "after", ready)
	unharmed(t, s, a, "small", was)
}

// A container's writes to its own root are no image: its pod is evicted, but only after the unused images were removed, and no
// other pod is.
func TestEviction_OfFullWritableLayer(t *testing.T) {
	s := stack.Start(t, stack.Options{DiskMiB: 200})
	a := imagesShort(t, s)
	for _, name := range []string{"hog", "small"} {
		must(t, a.Write(name+".yaml", policyPod(s, name, s.HelloImage(), "IfNotPresent")))
	}
	awaitPod(t, a, "hog", ready)
	hog, was := inside(t, s, "hog", "/much"), up(t, s, "small", "c").Id
	must(t, stack.Fill(inside(t, s, "small", "/little"), 1<<20))
	unused := pullBig(t, s, "unused", 5)
	survey(t, a)
	p := cross(t, a)
	must(t, stack.Fill(hog, 110<<20))
	awaitPod(t, a, "hog", evicted("The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: ",
		"Container c was using ", "request is 0, has larger consumption of ephemeral-storage. "))
	p.ends(corev1.NodeDiskPressure, "met imagefs.available", "containers", "images", "evicted hog by imagefs.available",
		"containers", "images")
	if hasImage(t, s, unused) {
		t.Error("the image that nobody uses is still there")
	}
	unharmed(t, s, a, "small", was)
}
