package podresources

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
)

// namedDevices assigns each container a device of the same name.
type namedDevices struct{}

func (namedDevices) Of(uid, container string) []*api.ContainerDevices {
	return []*api.ContainerDevices{{ResourceName: "example.com/gpu", DeviceIds: []string{uid + "-" + container}}}
}

// claimPerContainer has a claim for each container, by its pod and name.
type claimPerContainer struct{}

func (claimPerContainer) Of(pod *v1.Pod, c *v1.Container) []*api.DynamicResource {
	return []*api.DynamicResource{{ClaimName: string(pod.UID) + "-" + c.Name, ClaimNamespace: "ns"}}
}

func (namedDevices) Allocatable() []*api.ContainerDevices { return namedDevices{}.Of("all", "free") }

// sidecarCPUs gives each sidecar CPU 1, of CPUs 1 to 3.
type sidecarCPUs struct{}

func (sidecarCPUs) Exclusive(_, container string) []int64 {
	if container == "side" {
		return []int64{1}
	}
	return nil
}

func (sidecarCPUs) Allocatable() []int64 { return []int64{1, 2, 3} }

// sidecarMemory gives each sidecar 1 byte of NUMA node 0.
type sidecarMemory struct{}

func (sidecarMemory) Of(_, container string) []*api.ContainerMemory {
	if container == "side" {
		return sidecarMemory{}.Allocatable()
	}
	return nil
}

func (sidecarMemory) Allocatable() []*api.ContainerMemory {
	return []*api.ContainerMemory{{MemoryType: "memory", Size: 1}}
}

// TestNew_ServesBothVersions calls List of each API by its name in gRPC.
func TestNew_ServesBothVersions(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := httptest.NewUnstartedServer(New(board.New(), namedDevices{}, sidecarCPUs{}, sidecarMemory{}, claimPerContainer{}, false))
	server.Config.Protocols = &protocols
	server.Start()
	defer server.Close()
	conn, err := grpc.NewClient(server.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test is over
	if _, err := api.NewPodResourcesListerClient(conn).List(t.Context(), &api.ListPodResourcesRequest{}); err != nil {
		t.Errorf("v1: %v", err)
	}
	if _, err := v1alpha1.NewPodResourcesListerClient(conn).List(t.Context(), &v1alpha1.ListPodResourcesRequest{}); err != nil {
		t.Errorf("v1alpha1: %v", err)
	}
}

// Finished pods are not in v1's list, unless the feature gate is off, but available by name. v1alpha1 has them without devices.
// Of init containers only sidecars are listed.
func TestWhatIsReported(t *testing.T) {
	b := board.New()
	pod := func(name string, phase v1.PodPhase) board.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "u"}}
		p.Spec.InitContainers = []v1.Container{{Name: "init"},
			{Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}}
		p.Spec.Containers = []v1.Container{{Name: "app"}}
		return board.Pod{Pod: p, Status: &v1.PodStatus{Phase: phase}}
	}
	lingers := pod("ends", v1.PodFailed) // the API server set the phase before the pod had ended
	lingers.Phase = "terminating"
	b.Publish(board.Snapshot{Pods: []board.Pod{pod("runs", v1.PodRunning), pod("over", v1.PodFailed), {Pod: pod("new", "").Pod},
		lingers}})
	l := &lister{board: b, devices: namedDevices{}, cpus: sidecarCPUs{}, memory: sidecarMemory{}, claims: claimPerContainer{}}
	list, err := l.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	words := func(list *api.ListPodResourcesResponse) (got []string) {
		for _, p := range list.GetPodResources() {
			got = append(got, p.GetNamespace()+"/"+p.GetName())
			for _, c := range p.GetContainers() {
				var ids []string
				for _, d := range c.GetDevices() {
					ids = append(ids, d.GetDeviceIds()...)
				}
				for _, r := range c.GetDynamicResources() {
					ids = append(ids, "claim-"+r.GetClaimName())
				}
				var memory []string
				for _, m := range c.GetMemory() {
					memory = append(memory, fmt.Sprint(m.GetMemoryType(), "=", m.GetSize()))
				}
				got = append(got, fmt.Sprint(c.GetName(), ids, c.GetCpuIds(), memory))
			}
		}
		return got
	}
	got := words(list)
	if want := "ns/runs side[u-side claim-u-side] [1] [memory=1] app[u-app claim-u-app] [] [] ns/new side[u-side claim-u-side] [1] [memory=1] " +
		"app[u-app claim-u-app] [] [] ns/ends side[u-side claim-u-side] [1] [memory=1] app[u-app claim-u-app] [] []"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
	all := &lister{board: b, devices: namedDevices{}, cpus: sidecarCPUs{}, memory: sidecarMemory{}, claims: claimPerContainer{}, ended: true}
	list, err = all.List(t.Context(), nil)
	if got := strings.Join(words(list), " "); err != nil || len(list.GetPodResources()) != 4 ||
		!strings.Contains(got, "ns/over side[] [1] [memory=1] app[] [] []") {
		t.Errorf("with ended pods: %s, %v", got, err)
	}
	alpha, err := (&alphaLister{lister: l}).List(t.Context(), nil)
	if err != nil || len(alpha.GetPodResources()) != 4 {
		t.Fatalf("v1alpha1: got %v, %v, want 4 pods", alpha, err)
	}
	if over := alpha.GetPodResources()[1]; over.GetName() != "over" || len(over.GetContainers()[0].GetDevices()) > 0 {
		t.Errorf("v1alpha1: got second pod %v, want the ended one without devices", over)
	}
	first := alpha.GetPodResources()[0]
	if c := first.GetContainers(); first.GetName() != "runs" || len(c) != 1 || c[0].GetName() != "app" ||
		c[0].GetDevices()[0].GetResourceName() != "example.com/gpu" || c[0].GetDevices()[0].GetDeviceIds()[0] != "u-app" {
		t.Errorf("v1alpha1: got first pod %v", first)
	}
	if one, err := l.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "over", PodNamespace: "ns"}); err != nil ||
		one.GetPodResources().GetName() != "over" {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := l.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "none", PodNamespace: "ns"}); err == nil ||
		status.Code(err) != codes.Unknown || err.Error() != "pod none in namespace ns not found" {
		t.Errorf("%v", err)
	}
	if all, err := l.GetAllocatableResources(t.Context(), nil); err != nil || len(all.GetDevices()) != 1 || len(all.GetCpuIds()) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}
