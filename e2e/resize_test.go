//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resize is kubectl patch --subresource resize: the first container asks for so much, as request and as limit.
func resize(t *testing.T, c *cluster.Cluster, ns, name, cpu, memory string) {
	t.Helper()
	list := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, cpu, memory)
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","resources":{"requests":%s,"limits":%s}}]}}`, list, list)
	_, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
		"resize")
	must(t, err)
}

// resized is for awaitAPIPod: the container has this memory and number of restarts, and no resize is in progress.
func resized(memory string, restarts int32) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				return fmt.Errorf("its condition is %+v", c)
			}
		}
		s := p.Status.ContainerStatuses[0]
		if want := resource.MustParse(memory); p.Status.ObservedGeneration != p.Generation || s.State.Running == nil ||
			s.RestartCount != restarts || s.Resources.Limits.Memory().Cmp(want) != 0 || s.AllocatedResources.Memory().Cmp(want) != 0 {
			return fmt.Errorf("of generation %d it tells %+v", p.Generation, p.Status)
		}
		return nil
	}
}

// A running container is resized up and down, also by an agent that is killed right after the request. Its limits are in its
// cgroup and in the pod's. With RestartContainer it is recreated.
func TestResizeInPlace(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	const text = `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [sleep], resizePolicy: POLICY,
  resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 100m, memory: 64Mi}}}]`
	const never, restart = "[]", "[{resourceName: memory, restartPolicy: RestartContainer}]"
	uid := string(create(t, c, ns, n.Name, manifest(s, "p", strings.Replace(text, "POLICY", never, 1))).UID)
	create(t, c, ns, n.Name, manifest(s, "anew", strings.Replace(text, "POLICY", restart, 1)))
	awaitAPIPod(t, c, ns, "p", ready)
	awaitAPIPod(t, c, ns, "anew", ready)
	id := func() string {
		t.Helper()
		return strings.TrimPrefix(awaitAPIPod(t, c, ns, "p", ready).Status.ContainerStatuses[0].ContainerID, "containerd://")
	}
	was := id()
	holds := func(quota string, mebibytes int) {
		t.Helper()
		memory := strconv.Itoa(mebibytes << 20)
		for _, group := range []string{groupOf(t, s, was), filepath.Join(s.CgroupRoot(), "kubepods", "pod"+uid)} {
			groupHolds(t, group, "memory/memory.limit_in_bytes", "memory.max", memory, memory)
			groupHolds(t, group, "cpu/cpu.cfs_quota_us", "cpu.max", quota, quota+" 100000")
		}
	}
	holds("10000", 64)
	began := time.Now()
	resize(t, c, ns, "p", "200m", "128Mi")
	holds("20000", 128)
	t.Logf("from the patch to the last cgroup's value: %s", time.Since(began).Round(time.Millisecond))
	awaitAPIPod(t, c, ns, "p", resized("128Mi", 0))
	resize(t, c, ns, "p", "50m", "48Mi")
	must(t, a.Kill9())
	must(t, a.Start())
	holds("5000", 48)
	awaitAPIPod(t, c, ns, "p", resized("48Mi", 0))
	if is := id(); is != was {
		t.Errorf("the container was %s and is %s", was, is)
	}
	resize(t, c, ns, "anew", "100m", "96Mi")
	awaitAPIPod(t, c, ns, "anew", resized("96Mi", 1))
	resize(t, c, ns, "p", "100m", "64Mi")
	awaitAPIPod(t, c, ns, "p", resized("64Mi", 0))
}

// A running pod's own resources are resized, also by an agent that is killed in the meantime: its cgroup and the container with
// the pod's limits get them, and its status reports them.
func TestResizeOfAPodsOwnResources(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	uid := string(create(t, c, ns, n.Name, manifest(s, "p", `
terminationGracePeriodSeconds: 1
resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 100m, memory: 64Mi}}
containers:
- {name: c, image: HELLO, args: [sleep]}
- {name: own, image: HELLO, args: [sleep], resources: {requests: {memory: 32Mi}, limits: {memory: 32Mi}}}`)).UID)
	p := awaitAPIPod(t, c, ns, "p", ready)
	was := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	own := strings.TrimPrefix(p.Status.ContainerStatuses[1].ContainerID, "containerd://")
	change := func(cpu, memory string) {
		t.Helper()
		list := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, cpu, memory)
		_, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "p", types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"resources":{"requests":%s,"limits":%s}}}`, list, list), metav1.PatchOptions{}, "resize")
		must(t, err)
	}
	holds := func(quota string, mebibytes int) {
		t.Helper()
		memory := strconv.Itoa(mebibytes << 20)
		for _, group := range []string{groupOf(t, s, was), filepath.Join(s.CgroupRoot(), "kubepods", "pod"+uid)} {
			groupHolds(t, group, "memory/memory.limit_in_bytes", "memory.max", memory, memory)
			groupHolds(t, group, "cpu/cpu.cfs_quota_us", "cpu.max", quota, quota+" 100000")
		}
		limit := strconv.Itoa(32 << 20)
		groupHolds(t, groupOf(t, s, own), "memory/memory.limit_in_bytes", "memory.max", limit, limit)
		want := resource.MustParse(fmt.Sprintf("%dMi", mebibytes))
		awaitAPIPod(t, c, ns, "p", func(p *corev1.Pod) error {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
					return fmt.Errorf("its condition is %+v", c)
				}
			}
			if r := p.Status.Resources; p.Status.ObservedGeneration != p.Generation || r == nil || r.Limits.Memory().Cmp(want) != 0 ||
				p.Status.AllocatedResources.Memory().Cmp(want) != 0 || len(p.Status.ContainerStatuses[0].Resources.Limits) > 0 {
				return fmt.Errorf("of generation %d it tells %+v", p.Generation, p.Status)
			}
			return nil
		})
	}
	holds("10000", 64)
	change("200m", "128Mi")
	holds("20000", 128)
	change("50m", "48Mi")
	must(t, a.Kill9())
	must(t, a.Start())
	holds("5000", 48)
	change("50m", "32Mi") // no less than a container's
	holds("5000", 32)
	for _, status := range awaitAPIPod(t, c, ns, "p", ready).Status.ContainerStatuses {
		if id := strings.TrimPrefix(status.ContainerID, "containerd://"); id != was && id != own || status.RestartCount != 0 {
			t.Errorf("container %s is %s now", status.Name, id)
		}
	}
}
