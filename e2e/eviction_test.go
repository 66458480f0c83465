//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// evicted is for awaitPod: the node has evicted the pod with these words as the reason.
func evicted(words ...string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted" {
			return fmt.Errorf("pod %s is %s: %+v", p.Name, p.Status.Phase, p.Status)
		}
		for _, w := range words {
			if !strings.Contains(p.Status.Message, w) {
				return fmt.Errorf("%q does not say %q", p.Status.Message, w)
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", p.Status.Conditions)
	}
}

// withVolume is a pod that sleeps, with an emptyDir v.
func withVolume(emptyDir string) string {
	return "containers: [{name: c, image: HELLO, args: [sleep], volumeMounts: [{name: v, mountPath: /v}]}]\n" +
		"volumes: [{name: v, emptyDir: {" + emptyDir + "}}]"
}

// fill writes so many mebibytes to the emptyDir v of a pod that runs.
func fill(t *testing.T, a *stack.Agent, name string, mebibytes int) string {
	t.Helper()
	return fillVolume(t, a, awaitPod(t, a, name, ready), mebibytes)
}

func fillVolume(t *testing.T, a *stack.Agent, pod *corev1.Pod, mebibytes int) string {
	t.Helper()
	dir := filepath.Join(a.RootDir, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir/v")
	must(t, os.WriteFile(filepath.Join(dir, "much"), make([]byte, mebibytes<<20), 0o644))
	return dir
}

// A pod whose emptyDir exceeds its sizeLimit is evicted, also by an agent that was killed in between, and stays evicted; no other
// pod is.
func TestAnEmptyDirAboveItsLimitIsEvicted(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t, "--evict-static-pods")
	must(t, a.Write("over.yaml", manifest(s, "over", withVolume("sizeLimit: 1Mi"))))
	must(t, a.Write("within.yaml", manifest(s, "within", withVolume("sizeLimit: 8Mi"))))
	fill(t, a, "within", 2)
	was := up(t, s, "within", "c").Id
	dir := fill(t, a, "over", 2)
	began := time.Now()
	says := evicted(`Usage of EmptyDir volume "v" exceeds the limit "1Mi". `)
	awaitPod(t, a, "over", says)
	t.Logf("from crossing to Failed: %s", time.Since(began).Round(10*time.Millisecond))
	down(t, s, "over", "c")
	await(t, func() error {
		if !absent(dir) {
			return fmt.Errorf("%s is still there", dir)
		}
		return nil
	})
	out, errs, _ := playlet(t, "explain", "pod/over", "--admin-socket="+a.AdminSocket)
	if first, _, _ := strings.Cut(out, "\n"); !strings.Contains(first, `Usage of EmptyDir volume "v" exceeds the limit "1Mi"`) {
		t.Errorf("it is explained so: %s%s", out, errs)
	}
	must(t, a.Write("total.yaml", manifest(s, "total", strings.Replace(withVolume(""), "args: [sleep],",
		"args: [sleep], resources: {limits: {ephemeral-storage: 1Mi}},", 1))))
	fill(t, a, "total", 2)
	awaitPod(t, a, "total", evicted("Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "))
	must(t, a.Kill9())
	must(t, a.Start())
	awaitPod(t, a, "over", says)
	if now := awaitPod(t, a, "within", ready); up(t, s, "within", "c").Id != was || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod is %+v", now.Status)
	}
}

// A file system that a pod has filled is the node's again: the pod is evicted, no other one is, and the pressure comes and goes.
func TestAPodThatFillsTheDiskIsEvicted(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Args = append(a.Args, "--evict-static-pods")
		a.Config["evictionHard"] = map[string]string{"memory.available": "1Mi", "nodefs.available": "20Mi"}
		a.Config["evictionPressureTransitionPeriod"] = "1s"
		smallDisk(t, a.RootDir, 100)
	})
	must(t, a.Write("hog.yaml", manifest(s, "hog", withVolume(""))))
	must(t, a.Write("small.yaml", manifest(s, "small", withVolume(""))))
	fill(t, a, "small", 5)
	was := up(t, s, "small", "c").Id
	fill(t, a, "hog", 65)
	began := time.Now()
	awaitPod(t, a, "hog", evicted("The node was low on resource: ephemeral-storage. Threshold quantity: 20Mi, available: "))
	t.Logf("from crossing to Failed: %s", time.Since(began).Round(10*time.Millisecond))
	for _, under := range []string{"true", "false"} {
		await(t, func() error {
			if log := a.Log(); !strings.Contains(log, "condition=DiskPressure under="+under) {
				return fmt.Errorf("nothing is logged of pressure that is %s", under)
			}
			return nil
		})
	}
	if now := awaitPod(t, a, "small", ready); up(t, s, "small", "c").Id != was || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod is %+v", now.Status)
	}
}

// smallDisk mounts a file system of so many mebibytes, on a loop device.
func smallDisk(t *testing.T, at string, mebibytes int64, options ...string) {
	t.Helper()
	must(t, stack.MountDisk(filepath.Join(t.TempDir(), "disk"), at, mebibytes, options...))
	t.Cleanup(func() { _ = stack.UnmountDisk(at) })
}

// Pods that use up the memory that they have together are evicted before the kernel ends any of them: the one that has most
// beyond its request.
func TestEviction_OnPodsMemory(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	total := memoryTotal(t)
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Args = append(a.Args, "--evict-static-pods")
		a.Config["systemReserved"] = map[string]string{"memory": fmt.Sprint(total - 400<<20)}
		a.Config["evictionHard"] = map[string]string{"memory.available": "150Mi"}
	})
	const modest = `containers: [{name: c, image: HELLO, args: [alloc, "60", --, sleep], resources: {requests: {memory: 80Mi}}}]`
	must(t, a.Write("modest.yaml", manifest(s, "modest", modest)))
	awaitPod(t, a, "modest", ready)
	was := up(t, s, "modest", "c").Id
	time.Sleep(3 * time.Second) // the agent has measured the cgroup of all pods: the rest is only a figure
	must(t, a.Write("hog.yaml", manifest(s, "hog", `containers: [{name: c, image: HELLO, args: [alloc, "260", --, sleep]}]`)))
	awaitPod(t, a, "hog", evicted("The node was low on resource: memory. Threshold quantity: 150Mi, available: ",
		"Container c was using ", "request is 0, has larger consumption of memory. "))
	ended := down(t, s, "hog", "c")
	t.Logf("from the container's start to its end, with a grace period of 1 s: %s",
		time.Duration(ended.FinishedAt-ended.StartedAt).Round(10*time.Millisecond))
	if now := awaitPod(t, a, "modest", ready); up(t, s, "modest", "c").Id != was || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod is %+v", now.Status)
	}
}

// In a cluster an eviction is reported everywhere: in the pod's status, its condition and an Event; in the Node's condition,
// which comes and goes; and pods that come in the meantime are rejected. An agent that is killed while it evicts evicts no other
// pod.
func TestAnEvictionIsReportedToTheCluster(t *testing.T) {
	c := cluster.Shared(t)
	ns, n := c.Namespace(t), c.Node(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Config["evictionHard"] = map[string]string{"memory.available": "1Mi", "nodefs.available": "20Mi"}
		a.Config["evictionPressureTransitionPeriod"], a.Config["nodeStatusUpdateFrequency"] = "15s", "1s"
		smallDisk(t, a.RootDir, 100)
	})
	awaitNode(t, c, n.Name, nodeReady)
	create(t, c, ns, n.Name, manifest(s, "small", withVolume("")))
	hog := create(t, c, ns, n.Name, manifest(s, "hog", withVolume("")))
	fillVolume(t, a, awaitAPIPod(t, c, ns, "small", ready), 5)
	fillVolume(t, a, awaitAPIPod(t, c, ns, "hog", ready), 65)
	isPressed := pressed(corev1.NodeDiskPressure, "KubeletHasDiskPressure")
	reported := map[string]int32{"Warning EvictionThresholdMet : Attempting to reclaim ephemeral-storage": 1, "Normal NodeHasDiskPressure ": 1}
	if os.Getenv("PLAYLET_E2E_SUBJECT") == "" {
		await(t, func() error {
			if !strings.Contains(a.Log(), "evicting a pod") {
				return errors.New("no pod is evicted")
			}
			return nil
		})
		must(t, a.Kill9())
		awaitNode(t, c, n.Name, func(n *corev1.Node) error {
			if isPressed(n) == nil { // the Event may have died with the agent: it is sent once, after the condition
				delete(reported, "Normal NodeHasDiskPressure ")
			}
			return nil
		})
		must(t, a.Start())
	}
	awaitAPIPod(t, c, ns, "hog", evicted("The node was low on resource: ephemeral-storage. Threshold quantity: 20Mi, available: "))
	awaitNode(t, c, n.Name, isPressed)
	create(t, c, ns, n.Name, manifest(s, "late", withVolume("")))
	awaitAPIPod(t, c, ns, "late", func(p *corev1.Pod) error {
		if p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, "The node had condition: [DiskPressure]") {
			return fmt.Errorf("pod late is %+v", p.Status)
		}
		return nil
	})
	awaitEvents(t, c, ns, string(hog.UID), map[string]int32{"Warning Evicted : The node was low on resource: ephemeral-storage. ": 1})
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, reported)
	awaitNode(t, c, n.Name, func(n *corev1.Node) error {
		if isPressed(n) == nil {
			return errors.New("the pressure stays")
		}
		return nil
	})
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, map[string]int32{"Normal NodeHasNoDiskPressure ": 2}) // the first as it began
	create(t, c, ns, n.Name, manifest(s, "after", withVolume("")))
	awaitAPIPod(t, c, ns, "after", ready)
	if p := awaitAPIPod(t, c, ns, "small", ready); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod is %+v", p.Status)
	}
}
