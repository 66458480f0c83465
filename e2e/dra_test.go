//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/actors/resources/resourcestest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

const draDriver = "gpu.dra.example.org"

// Two pods share a ResourceClaim. They wait for its reservation and its driver, which playlet explain names. The driver prepares
// it once, both containers see its device, also when the agent was killed, and it is unprepared after the second pod. The slices
// that a driver has left behind are deleted at the start.
func TestResourceClaims(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	must(t, os.MkdirAll("/var/run/cdi", 0o755))
	spec := filepath.Join("/var/run/cdi", draDriver+".json")
	must(t, os.WriteFile(spec, fmt.Appendf(nil, `{"cdiVersion": "0.6.0", "kind": "%s/test",
		"devices": [{"name": "shared", "containerEdits": {"env": ["CLAIM=of the driver"]}}]}`, draDriver), 0o644))
	t.Cleanup(func() { _ = os.Remove(spec) })
	left := publishSlice(t, c, n.Name)
	s, a := inCluster(t, c, n, nil)
	await(t, func() error {
		if _, err := c.Admin.ResourceV1().ResourceSlices().Get(t.Context(), left, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("slice %s is still there", left)
		}
		return nil
	})
	publishSlice(t, c, n.Name)
	allocate(t, c, ns, n.Name, "shared")
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"first", "second"} {
		pods[name] = create(t, c, ns, n.Name, manifest(s, name, withTool(t, "terminationGracePeriodSeconds: 1\n"+
			"resourceClaims: [{name: gpu, resourceClaimName: shared}]\n"+
			"containers: [{name: c, image: HELLO, args: [sleep, '100000'], TOOL, resources: {claims: [{name: gpu}]}}]", t.TempDir())))
	}
	explains := func(name string, texts ...string) {
		t.Helper()
		await(t, func() error {
			out, errs, _ := playlet(t, "explain", "pod/"+name, "-n", ns, "--admin-socket="+a.AdminSocket)
			for _, text := range texts {
				if !strings.Contains(out, text) {
					return fmt.Errorf("explain %s lacks %q: %s %s", name, text, out, errs)
				}
			}
			return nil
		})
	}
	explains("first", "is not allowed to use ResourceClaim "+ns+"/shared")
	reserve(t, c, ns, "shared", pods["first"], pods["second"])
	explains("first", "DRA driver "+draDriver+" of ResourceClaim "+ns+"/shared is not registered on this node", "plugins_registry")
	await(t, func() error {
		list, err := c.Admin.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=first"})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "FailedPrepareDynamicResources" && strings.Contains(e.Message, "DRA driver "+draDriver+" is not registered") {
				return nil
			}
		}
		return fmt.Errorf("no Event names the driver: %+v", list.Items)
	})

	d := resourcestest.NewDriver(filepath.Join(a.RootDir, "plugins_registry"), draDriver)
	must(t, d.Listen())
	t.Cleanup(d.Stop)
	calls := func(want ...string) {
		t.Helper()
		if got := d.Calls(); !slices.Equal(got, want) {
			t.Errorf("calls of the driver: %q, want %q", got, want)
		}
	}
	was := map[string]string{}
	for name := range pods {
		was[name] = awaitAPIPod(t, c, ns, name, ready).Status.ContainerStatuses[0].ContainerID
		sees(t, a, ns, name)
	}
	calls("prepare shared")

	must(t, a.Kill9())
	must(t, a.Start())
	for name := range pods {
		awaitHere(t, a, name, readyHere)
		pod := awaitAPIPod(t, c, ns, name, ready)
		if s := pod.Status.ContainerStatuses[0]; s.ContainerID != was[name] || s.RestartCount != 0 {
			t.Errorf("%s: its container was %s and is %+v", name, was[name], s)
		}
		sees(t, a, ns, name)
	}
	remove(t, c, ns, "first")
	awaitNoAPIPod(t, c, ns, "first")
	calls("prepare shared")
	d.Fail(fmt.Errorf("no power"))
	remove(t, c, ns, "second")
	explains("second", "cannot be unprepared", draDriver, "no power")
	d.Fail(nil)
	awaitNoAPIPod(t, c, ns, "second")
	if got := d.Prepared(); len(got) > 0 {
		t.Errorf("after both pods, the driver has %q", got)
	}
	text, err := os.ReadFile(filepath.Join(a.RootDir, "dra_manager_state"))
	if err != nil || strings.Contains(string(text), "shared") {
		t.Errorf("after both pods, the checkpoint is %s, %v", text, err)
	}
}

// sees checks the environment of a pod's container, and its claim by the pod resources API.
func sees(t *testing.T, a *stack.Agent, ns, name string) {
	t.Helper()
	await(t, func() error {
		out, errs, _ := playlet(t, "exec", "--admin-socket="+a.AdminSocket, "-n", ns, name, "-c", "c", "--", toolPath, "tool", "env", "CLAIM")
		if strings.TrimSpace(out) != "of the driver" {
			return fmt.Errorf("%s sees %q, %s", name, out, errs)
		}
		return nil
	})
	conn, err := grpc.NewClient("unix:"+filepath.Join(a.RootDir, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer func() { must(t, conn.Close()) }()
	got, err := podresources.NewPodResourcesListerClient(conn).Get(t.Context(),
		&podresources.GetPodResourcesRequest{PodNamespace: ns, PodName: name}, grpc.WaitForReady(true))
	must(t, err)
	claims := got.GetPodResources().GetContainers()[0].GetDynamicResources()
	if len(claims) != 1 || claims[0].GetClaimName() != "shared" || len(claims[0].GetClaimResources()) != 1 ||
		claims[0].GetClaimResources()[0].GetCdiDevices()[0].GetName() != draDriver+"/test=shared" {
		t.Errorf("the pod resources API has of %s: %v", name, claims)
	}
}

// publishSlice publishes a ResourceSlice as the driver would, and returns its name.
func publishSlice(t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	made, err := c.Admin.ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "slice-"},
		Spec: resourceapi.ResourceSliceSpec{Driver: draDriver, NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "device"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { // it may be gone already
		_ = c.Admin.ResourceV1().ResourceSlices().Delete(t.Context(), made.Name, metav1.DeleteOptions{})
	})
	return made.Name
}

// allocate makes a claim with a device of the node, as a scheduler would.
func allocate(t *testing.T, c *cluster.Cluster, ns, node, name string) {
	t.Helper()
	class := "class-" + ns
	_, err := c.Admin.ResourceV1().DeviceClasses().Create(t.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}}, metav1.CreateOptions{})
	must(t, err)
	claim, err := c.Admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}}}},
	}, metav1.CreateOptions{})
	must(t, err)
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: draDriver, Pool: node, Device: "device"}}}}
	_, err = c.Admin.ResourceV1().ResourceClaims(ns).UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	must(t, err)
}

// reserve reserves a claim for pods, as a scheduler would.
func reserve(t *testing.T, c *cluster.Cluster, ns, name string, pods ...*corev1.Pod) {
	t.Helper()
	claim, err := c.Admin.ResourceV1().ResourceClaims(ns).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	for _, p := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	_, err = c.Admin.ResourceV1().ResourceClaims(ns).UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	must(t, err)
}
