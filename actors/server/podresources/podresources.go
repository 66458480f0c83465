// Package podresources serves the kubelet's pod resources APIs v1 and v1alpha1: the pods on the node, and the devices,
// ResourceClaims, exclusive CPUs and memory by NUMA node of their containers (KEP-606, KEP-2043, KEP-3695).
//
// As with the kubelet, List of v1 omits ended pods unless the feature gate KubeletPodResourcesListUseActivePods is off. List of
// v1alpha1 has them in any case, without devices. Get finds an ended pod, too.
package podresources

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// Faster requests are rejected; the figures are the kubelet's.
const (
	perSecond = 100
	burst     = 10
)

// Devices provides the devices of containers; *devices.Manager implements it. None of the methods blocks.
type Devices interface {
	Of(uid, container string) []*api.ContainerDevices
	Allocatable() []*api.ContainerDevices
}

// CPUs provides the CPUs that containers have to themselves; *cpus.Manager implements it. None of the methods blocks.
type CPUs interface {
	Exclusive(uid, container string) []int64
	Allocatable() []int64
}

// Memory provides the memory of containers by NUMA node; *numamemory.Manager implements it. None of the methods blocks.
type Memory interface {
	Of(uid, container string) []*api.ContainerMemory
	Allocatable() []*api.ContainerMemory
}

// Claims provides the ResourceClaims of containers; *dra.Manager implements it. Of does not block.
type Claims interface {
	Of(pod *v1.Pod, c *v1.Container) []*api.DynamicResource
}

// Limited rejects requests that come faster than a kubelet accepts them.
func Limited() grpc.ServerOption {
	limiter := rate.NewLimiter(perSecond, burst)
	return grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if !limiter.Allow() {
				return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
			}
			return next(ctx, req)
		})
}

// New returns the handler: gRPC over HTTP/2 without TLS. Claims may be nil. With ended, List of v1 has ended pods, too.
func New(b *board.Board, devices Devices, cpus CPUs, memory Memory, claims Claims, ended bool) http.Handler {
	s := grpc.NewServer(Limited())
	l := &lister{board: b, devices: devices, cpus: cpus, memory: memory, claims: claims, ended: ended}
	api.RegisterPodResourcesListerServer(s, l)
	v1alpha1.RegisterPodResourcesListerServer(s, &alphaLister{lister: l})
	return s
}

type lister struct {
	api.UnimplementedPodResourcesListerServer
	board   *board.Board
	devices Devices
	cpus    CPUs
	memory  Memory
	claims  Claims
	ended   bool // List has ended pods, too
}

// List implements api.PodResourcesListerServer.
func (l *lister) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	metrics.PodResources("v1", "requests_total", "requests_list")
	out := &api.ListPodResourcesResponse{}
	for _, p := range l.board.Now().Pods {
		if active(p) || l.ended {
			out.PodResources = append(out.PodResources, l.of(p))
		}
	}
	return out, nil
}

// active reports whether a pod may still use resources: it is not finished, or has running containers.
func active(p board.Pod) bool {
	return p.Status == nil || !finalstatus.Final(p.Status.Phase) || p.Phase == "terminating"
}

// Get implements api.PodResourcesListerServer.
func (l *lister) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	metrics.PodResources("v1", "requests_total", "requests_get")
	for _, p := range l.board.Now().Pods {
		if p.Pod.Namespace == r.GetPodNamespace() && p.Pod.Name == r.GetPodName() {
			return &api.GetPodResourcesResponse{PodResources: l.of(p)}, nil
		}
	}
	metrics.PodResources("v1", "errors_get")
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
}

// GetAllocatableResources implements api.PodResourcesListerServer.
func (l *lister) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse,
	error) {
	metrics.PodResources("v1", "requests_total", "requests_get_allocatable")
	return &api.AllocatableResourcesResponse{Devices: l.devices.Allocatable(), CpuIds: l.cpus.Allocatable(),
		Memory: l.memory.Allocatable()}, nil
}

// of returns a pod's containers: sidecars, then regular containers.
func (l *lister) of(p board.Pod) *api.PodResources {
	pod := p.Pod
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for _, c := range podspec.LongRunning(pod) {
		uid := string(pod.UID)
		one := &api.ContainerResources{Name: c.Name, Devices: l.devicesOf(p, c.Name), CpuIds: l.cpus.Exclusive(uid, c.Name),
			Memory: l.memory.Of(uid, c.Name)}
		if l.claims != nil && active(p) {
			one.DynamicResources = l.claims.Of(pod, c)
		}
		out.Containers = append(out.Containers, one)
	}
	return out
}

// devicesOf returns a container's devices. An ended pod has none, although its allocation stays until the next one.
func (l *lister) devicesOf(p board.Pod, container string) []*api.ContainerDevices {
	if !active(p) {
		return nil
	}
	return l.devices.Of(string(p.Pod.UID), container)
}

// alphaLister implements v1alpha1.PodResourcesListerServer, which older monitors of devices use.
type alphaLister struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	lister *lister
}

// List implements v1alpha1.PodResourcesListerServer. It has no init containers, because the API has no sidecars.
func (a *alphaLister) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	metrics.PodResources("v1alpha1", "requests_total")
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, one := range a.lister.board.Now().Pods {
		pod := one.Pod
		p := &v1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for i := range pod.Spec.Containers {
			c := &v1alpha1.ContainerResources{Name: pod.Spec.Containers[i].Name}
			for _, d := range a.lister.devicesOf(one, c.Name) {
				c.Devices = append(c.Devices, &v1alpha1.ContainerDevices{ResourceName: d.ResourceName, DeviceIds: d.DeviceIds})
			}
			p.Containers = append(p.Containers, c)
		}
		out.PodResources = append(out.PodResources, p)
	}
	return out, nil
}
