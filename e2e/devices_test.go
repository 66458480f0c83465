//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/actors/resources/resourcestest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

const gpu = "example.com/gpu"

// A device plugin offers a device: the Node reports it, a pod gets it with an environment, a file and a device node, and keeps it
// when the agent is killed. A further pod fails as with a kubelet; after the first one's removal, another gets the device.
func TestDevicePlugin(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	files := t.TempDir()
	must(t, os.WriteFile(filepath.Join(files, "note"), []byte("mounted"), 0o644))
	p := resourcestest.NewPlugin(filepath.Join(a.RootDir, "device-plugins"), gpu, "a")
	p.Answer = func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		return &pluginapi.ContainerAllocateResponse{
			Envs:    map[string]string{"GPU": strings.Join(ids, ",")},
			Mounts:  []*pluginapi.Mount{{HostPath: files, ContainerPath: "/gpu", ReadOnly: true}},
			Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/zero", ContainerPath: "/dev/gpu", Permissions: "r"}},
		}, nil
	}
	registers := func() {
		t.Helper()
		p.Stop()
		must(t, p.Start(t.Context()))
		awaitNode(t, c, n.Name, devicesThere(1))
	}
	registers()
	t.Cleanup(p.Stop)
	asks := func(name string) string { // with 0 its object would go before it has ended
		return manifest(s, name, withTool(t, "terminationGracePeriodSeconds: 1\n"+
			"containers: [{name: c, image: HELLO, args: [sleep, '100000'], TOOL, resources: {limits: {example.com/gpu: 1}}}]", t.TempDir()))
	}
	create(t, c, ns, n.Name, asks("first"))
	was := awaitAPIPod(t, c, ns, "first", ready)
	sees := func(name string) {
		t.Helper()
		awaitHere(t, a, name, readyHere)
		out, err := exec.Command(program(), "exec", "--admin-socket="+a.AdminSocket, "-n", ns, name, "-c", "c", "--", toolPath, "tool",
			"device").CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != "a mounted true" {
			t.Errorf("%s sees %q: %v", name, got, err)
		}
		if got := devicesOf(t, a, ns, name); got != "a" {
			t.Errorf("the pod resources API says that %s has %q", name, got)
		}
	}
	sees("first")
	late := func(name, says string) {
		t.Helper()
		create(t, c, ns, n.Name, asks(name))
		pod := awaitAPIPod(t, c, ns, name, failedFor("UnexpectedAdmissionError"))
		if !strings.HasPrefix(pod.Status.Message, "Pod was rejected: Allocate failed due to "+says) {
			t.Errorf("%s: %q", name, pod.Status.Message)
		}
	}
	late("second", "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected")

	must(t, a.Kill9())
	must(t, a.Start())
	sees("first")
	awaitNode(t, c, n.Name, devicesThere(0)) // until its plugin registers again
	late("third", "no healthy devices present; cannot allocate unhealthy devices example.com/gpu, which is unexpected")
	registers()
	is := awaitAPIPod(t, c, ns, "first", ready)
	if was, is := was.Status.ContainerStatuses[0], is.Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID ||
		is.RestartCount != 0 || len(is.AllocatedResourcesStatus) != 1 {
		t.Errorf("its container was %+v and is %+v", was, is)
	}
	remove(t, c, ns, "first")
	awaitNoAPIPod(t, c, ns, "first")
	create(t, c, ns, n.Name, asks("fourth"))
	awaitAPIPod(t, c, ns, "fourth", ready)
	sees("fourth")
}

// devicesThere is for awaitNode: so many devices are there and allocatable.
func devicesThere(want int64) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		there, free := n.Status.Capacity[gpu], n.Status.Allocatable[gpu]
		if there.Value() != want || free.Value() != want {
			return fmt.Errorf("%s devices are there, and %s allocatable", there.String(), free.String())
		}
		return nil
	}
}

// devicesOf are the devices of a pod's first container, by the pod resources API.
func devicesOf(t *testing.T, a *stack.Agent, ns, name string) string {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(a.RootDir, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer func() { must(t, conn.Close()) }()
	client := podresources.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	must(t, err)
	for _, p := range list.GetPodResources() {
		if p.GetNamespace() == ns && p.GetName() == name {
			var ids []string
			for _, d := range p.GetContainers()[0].GetDevices() {
				ids = append(ids, d.GetDeviceIds()...)
			}
			return strings.Join(ids, " ")
		}
	}
	return ""
}
