package agent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/cri/sim"
)

// BenchmarkFigures measures one answer of each kind, with that many pods over the simulated runtime in another process: the
// time, the size and the allocations. Each answer reads fresh figures, as if no other request came within their maximum age.
//
//	go test ./cmd/playlet/agent -run '^$' -bench Figures -benchtime 5x
func BenchmarkFigures(b *testing.B) {
	for _, pods := range []int{110, 500} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) { benchmarkFigures(b, pods) })
	}
}

func benchmarkFigures(b *testing.B, pods int) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // any remains are in the machine's temporary folder
	socket := filepath.Join(dir, "s")
	startOtherSide(b, socket)
	r := newRig(b, sim.Options{}, "--container-runtime-endpoint=unix://"+socket, "--max-pods=1000")
	r.measured = true
	r.start(nil)
	for !r.agent.observatory.board.Now().Complete() {
		time.Sleep(time.Millisecond)
	}
	for i := range pods {
		r.write(fmt.Sprintf("p%04d.yaml", i), manifest(fmt.Sprintf("p%04d", i), "Always", nil, []string{"main image"}))
	}
	runningPods(b, r, pods)
	for _, path := range []string{"/stats/summary", "/metrics/resource", "/metrics/cadvisor", "/metrics"} {
		b.Run(path[1:], func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				b.StopTimer()
				options := figureOptions(r.agent.node, r.agent.observatory.board, r.agent.runtime, r.agent.cluster)
				options.UsageAge = -1 // volumes are walked beside it
				h := stats.Handler(stats.NewCollector(options), r.agent.observatory.metrics)
				b.StartTimer()
				size = answer(b, h, path)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
	r.stop()
}

func answer(b *testing.B, h http.Handler, path string) int {
	b.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		b.Fatal(path, w.Code)
	}
	n, _ := io.Copy(io.Discard, w.Body)
	return int(n)
}
