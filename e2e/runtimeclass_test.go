//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// makeClass makes a RuntimeClass of the runtime's second handler, with an overhead of 16Mi. Classes belong to no namespace, so
// they have the test's in their names.
func makeClass(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	_, err := c.Admin.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: stack.SecondHandler,
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}},
	}, metav1.CreateOptions{})
	must(t, err)
}

// runsBySecond returns the pod's only sandbox, which must be one of the second handler.
func runsBySecond(t *testing.T, s *stack.Stack, uid string) string {
	t.Helper()
	all, err := s.SandboxesOf(t.Context(), uid)
	must(t, err)
	if len(all) != 1 || all[0].RuntimeHandler != stack.SecondHandler {
		t.Fatalf("its sandboxes are %v", all)
	}
	return all[0].Id
}

// A pod runs with the handler of its RuntimeClass, and the class's overhead in its cgroup. A pod whose class was removed waits,
// with the kubelet's words, until it is recreated. Neither is touched when classes are removed and the agent is killed.
func TestRuntimeClasses(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	second, late := "second-"+ns, "late-"+ns
	makeClass(t, c, second)
	makeClass(t, c, late)
	const text = `
terminationGracePeriodSeconds: 1
runtimeClassName: CLASS
containers: [{name: c, image: IMAGE, args: [sleep], resources: {limits: {memory: 64Mi}}}]`
	pods := map[string]*corev1.Pod{} // before there is an agent, since the API server takes no pod without its class
	s := stack.Start(t, stack.Options{})
	for name, class := range map[string]string{"p": second, "waits": late} {
		pods[name] = create(t, c, ns, n.Name, manifest(s, name,
			strings.NewReplacer("CLASS", class, "IMAGE", "HELLO").Replace(text)))
	}
	must(t, c.Admin.NodeV1().RuntimeClasses().Delete(t.Context(), late, metav1.DeleteOptions{}))
	a := joinCluster(t, c, n, s, nil)

	awaitAPIPod(t, c, ns, "p", ready)
	sandbox := runsBySecond(t, s, string(pods["p"].UID))
	memory := strconv.Itoa(80 << 20)
	groupHolds(t, filepath.Join(s.CgroupRoot(), "kubepods/burstable", "pod"+string(pods["p"].UID)),
		"memory/memory.limit_in_bytes", "memory.max", memory, memory)
	missing := `Failed to create pod sandbox: runtimeclass.node.k8s.io "` + late + `" not found`
	await(t, func() error {
		events, err := c.Admin.CoreV1().Events(ns).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=waits,reason=FailedCreatePodSandBox"})
		if err != nil || len(events.Items) == 0 || !strings.HasPrefix(events.Items[0].Message, missing) {
			return fmt.Errorf("its events are %+v, %v", events.Items, err)
		}
		return nil
	})
	makeClass(t, c, late)
	awaitAPIPod(t, c, ns, "waits", ready)
	runsBySecond(t, s, string(pods["waits"].UID))

	before, err := s.ContainersOf(t.Context(), string(pods["p"].UID))
	must(t, err)
	for _, class := range []string{second, late} {
		must(t, c.Admin.NodeV1().RuntimeClasses().Delete(t.Context(), class, metav1.DeleteOptions{}))
	}
	must(t, a.Kill9())
	must(t, a.Start())
	settled(t, a)
	if again := runsBySecond(t, s, string(pods["p"].UID)); again != sandbox {
		t.Errorf("its sandbox was %s and is %s", sandbox, again)
	}
	asStarted(t, s, before)
	for name := range pods {
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
	}
}
