package stats

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	containerID1 = "1111111111111111111111111111111111111111111111111111111111111111"
	containerID2 = "2222222222222222222222222222222222222222222222222222222222222222"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeCRI returns the given figures, once it may.
type fakeCRI struct {
	mu    sync.Mutex
	calls int
	stats []*runtimeapi.ContainerStats
	at    string          // the location of images
	hangs <-chan struct{} // blocks calls until it is closed, unless nil
	large bool            // only lists of a pod, selected by the label of its UID, fit into one message
}

func (f *fakeCRI) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) (
	[]*runtimeapi.ContainerStats, error,
) {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	if f.hangs != nil {
		select {
		case <-f.hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.large && filter == nil {
		return nil, &cri.CallError{Err: status.Error(codes.ResourceExhausted, "grpc: received message larger than max (16777217 vs. 16777216)")}
	}
	var out []*runtimeapi.ContainerStats
	for _, s := range f.stats {
		if f.large && s.Attributes.Labels[cri.LabelPodUID] != filter.LabelSelector[cri.LabelPodUID] {
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

func (f *fakeCRI) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: f.at},
		UsedBytes: value(12345), InodesUsed: value(67),
	}}}, nil
}

func (*fakeCRI) PodSandboxStatus(_ context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if !verbose || id != containerID2 {
		return nil, errors.New("no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": `{"pid": 1, "image": "registry/pause"}`}}, nil
}

func (f *fakeCRI) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// criStats returns the figures of a container that used so many seconds of CPU and bytes of memory.
func criStats(id string, seconds, bytes uint64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: id},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: begin.UnixNano(), UsageCoreNanoSeconds: value(seconds * 1e9), UsageNanoCores: value(5e6),
		},
		Memory:        &runtimeapi.MemoryUsage{Timestamp: begin.UnixNano(), WorkingSetBytes: value(bytes), UsageBytes: value(2 * bytes)},
		Swap:          &runtimeapi.SwapUsage{Timestamp: begin.UnixNano(), SwapUsageBytes: value(3), SwapAvailableBytes: value(7)},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: begin.UnixNano(), UsedBytes: value(4096), InodesUsed: value(2)},
	}
}

// pod returns a pod with containers c1, c2 and so on, running under these IDs; a container without an ID has ended.
func pod(name string, ids ...string) board.Pod {
	p := board.Pod{
		Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}},
		Status: &v1.PodStatus{Phase: v1.PodRunning, StartTime: &metav1.Time{Time: begin}},
	}
	for i, id := range ids {
		c := "c" + string(rune('1'+i))
		p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, v1.Container{Name: c})
		s := v1.ContainerStatus{Name: c, Image: "registry/" + c}
		if id != "" {
			s.ContainerID = "containerd://" + id
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.Time{Time: begin.Add(time.Second)}}
		} else {
			s.State.Terminated = &v1.ContainerStateTerminated{}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	return p
}

// rig is a collector of a fake runtime, without cgroups of pods.
type rig struct {
	*Collector
	cri   *fakeCRI
	clock *clocktesting.FakePassiveClock
	actor *supervisortest.Kit
}

func newRig(t testing.TB, pods ...board.Pod) *rig {
	t.Helper()
	r := &rig{cri: &fakeCRI{at: t.TempDir()}, clock: clocktesting.NewFakePassiveClock(begin)}
	b := board.New()
	b.Publish(board.Snapshot{Pods: pods})
	r.Collector = NewCollector(Options{
		NodeName: "node", Board: b, CRI: r.cri, RootDir: t.TempDir(), PodLogsDir: t.TempDir(),
		Kubepods: func() string { return "" }, System: func() map[string]string { return nil }, Now: r.clock.Now,
	})
	r.actor = supervisortest.New(t, messages.Stats, New(r.Collector)(""))
	r.Attach(func(_ messages.Address, msg any) {
		r.actor.Send(messages.Node, msg)
		r.actor.RunWork()
	})
	return r
}
