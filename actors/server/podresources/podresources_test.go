package podresources

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
)

// named gives each container a device that is named after it.
type named struct{}

func (named) Of(uid, container string) []*api.ContainerDevices {
	return []*api.ContainerDevices{{ResourceName: "example.com/gpu", DeviceIds: []string{uid + "-" + container}}}
}

func (named) Allocatable() []*api.ContainerDevices { return named{}.Of("all", "free") }

// Pods that are over are not listed, but told of by name; of init containers only sidecars are.
func TestWhatIsReported(t *testing.T) {
	b := board.New()
	pod := func(name string, phase v1.PodPhase) board.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "u"}}
		p.Spec.InitContainers = []v1.Container{{Name: "init"},
			{Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}}
		p.Spec.Containers = []v1.Container{{Name: "app"}}
		return board.Pod{Pod: p, Status: &v1.PodStatus{Phase: phase}}
	}
	lingers := pod("ends", v1.PodFailed) // the API server called it so before it had ended
	lingers.Phase = "terminating"
	b.Publish(board.Snapshot{Pods: []board.Pod{pod("runs", v1.PodRunning), pod("over", v1.PodFailed), {Pod: pod("new", "").Pod},
		lingers}})
	l := &lister{board: b, devices: named{}}
	list, err := l.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list.GetPodResources() {
		got = append(got, p.GetNamespace()+"/"+p.GetName())
		for _, c := range p.GetContainers() {
			got = append(got, fmt.Sprint(c.GetName(), c.GetDevices()[0].GetDeviceIds(), c.GetCpuIds(), c.GetMemory()))
		}
	}
	if want := "ns/runs side[u-side] [] [] app[u-app] [] [] ns/new side[u-side] [] [] app[u-app] [] [] " +
		"ns/ends side[u-side] [] [] app[u-app] [] []"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
	if one, err := l.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "over", PodNamespace: "ns"}); err != nil ||
		one.GetPodResources().GetName() != "over" {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := l.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "none", PodNamespace: "ns"}); err == nil ||
		status.Code(err) != codes.Unknown || err.Error() != "pod none in namespace ns not found" {
		t.Errorf("%v", err)
	}
	if all, err := l.GetAllocatableResources(t.Context(), nil); err != nil || len(all.GetDevices()) != 1 || len(all.GetCpuIds()) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}
