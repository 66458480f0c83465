package cadvisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/model"
	"go.uber.org/goleak"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/cri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	podName = "/kubepods/burstable/poduid1"
	id1     = "1111111111111111111111111111111111111111111111111111111111111111"
	id2     = "1111111111112222222222222222222222222222222222222222222222222222"
	one     = podName + "/" + id1
	sandbox = podName + "/" + id2
)

// fake is a node with a pod, with the figures of the given second.
type fake struct {
	mu     sync.Mutex
	second int
	ages   []time.Duration
	lacks  []string
	none   bool
	image  string
	hangs  chan struct{} // blocks until it is closed, unless nil
}

func (f *fake) Containers(ctx context.Context, age time.Duration) (map[string]*model.ContainerInfo, []string) {
	if f.hangs != nil {
		select {
		case <-f.hangs:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ages = append(f.ages, age)
	if f.none {
		return nil, f.lacks
	}
	out := map[string]*model.ContainerInfo{}
	for _, name := range []string{"/", "/kubepods", "/kubepods/burstable", podName, one, sandbox, "/system.slice/playlet.service"} {
		n := uint64(f.second)
		s := &model.ContainerStats{
			Timestamp: begin.Add(time.Duration(f.second) * time.Second),
			Cpu:       &model.CpuStats{Usage: model.CpuUsage{Total: n * 5e8, User: n * 3e8, System: n * 2e8}},
			Memory:    &model.MemoryStats{Usage: 9 << 20, WorkingSet: 3 << 20, RSS: 1 << 20},
			Processes: &model.ProcessStats{ProcessCount: 2},
		}
		info := &model.ContainerInfo{ContainerReference: model.ContainerReference{Name: name}, Stats: []*model.ContainerStats{s}}
		info.Spec.HasCpu, info.Spec.HasMemory, info.Spec.Memory.Limit = true, true, 12<<20
		if strings.HasPrefix(name, podName) {
			info.Spec.Labels = map[string]string{cri.LabelPodNamespace: "default", cri.LabelPodName: "web"}
		}
		switch name {
		case "/":
			s.Filesystem = []model.FsStats{{Device: "/dev/a", Limit: 100, Usage: 40, Available: 50, ReadTime: 7, HasInodes: true, InodesFree: 6}}
			s.Network = &model.NetworkStats{Interfaces: []model.InterfaceStats{{Name: "eth0", RxBytes: n * 2048, TxBytes: n * 1024}}}
			info.Spec.HasNetwork = true
		case one:
			info.Aliases, info.Spec.Image = []string{id1}, f.image
			info.Spec.Labels[cri.LabelContainerName] = "nginx"
		case sandbox:
			info.Aliases = []string{id2}
		}
		out[name] = info
	}
	return out, f.lacks
}

func (f *fake) Machine(context.Context) (*model.MachineInfo, error) {
	if f.none {
		return nil, errors.New("the machine cannot be read")
	}
	return &model.MachineInfo{NumCores: 4, MachineID: "m1", MemoryCapacity: 1 << 30}, nil
}

// at moves the fake's clock.
func (f *fake) at(second int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.second = second
}

func newHandler(f *fake) http.Handler { return handlerOf(f, board.New()) }

func handlerOf(f *fake, b *board.Board) http.Handler {
	return New(Config{NodeName: "node", Figures: f, Board: b, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "container_cpu_usage_seconds_total 1")
	})})
}

// request makes a request, with a body for a POST.
func request(t testing.TB, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

func get(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return request(t, h, http.MethodGet, path, "")
}
