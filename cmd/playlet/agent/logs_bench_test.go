package agent

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
)

// oneLog is a runtime with one container.
type oneLog struct {
	containers.Runtime
	path string
}

func (l oneLog) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: "c1", LogPath: l.path, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	}}, nil
}

// BenchmarkLogsFollow follows a big log through the admin socket to its last line, beside tail -f of the same file.
func BenchmarkLogsFollow(b *testing.B) {
	dir, err := os.MkdirTemp("", "bench") // a short path: unix sockets have short names
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "0.log")
	size := bigLog(b, path)
	board := pods.NewBoard()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	board.Publish(pods.Snapshot{Version: 1, Pods: []pods.PublishedPod{{Pod: pod,
		Status: &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", ContainerID: "containerd://c1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}}}}})
	socket := filepath.Join(dir, "admin.sock")
	listeners := server.NewListeners(server.Config{AdminSocket: socket, Board: board, PodLogsDir: dir, CRI: oneLog{path: path}})
	if err := listeners.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = listeners.Close() }()
	var ours, tails time.Duration
	for b.Loop() {
		began := time.Now()
		ctx, cancel := context.WithCancel(b.Context())
		until := &lastLine{cancel: cancel}
		if err := api.NewClient(socket).Logs(ctx, "ns", "web", api.LogOptions{Follow: true}, until,
			func(string) {}); err != nil {
			b.Fatal(err)
		}
		cancel()
		ours += time.Since(began)
		began = time.Now()
		tailOf(b, path)
		tails += time.Since(began)
	}
	b.SetBytes(size)
	rate := func(d time.Duration) float64 { return float64(size) * float64(b.N) / d.Seconds() / (1 << 20) }
	b.ReportMetric(rate(ours), "MiB/s")
	b.ReportMetric(rate(tails), "tail-MiB/s")
	b.ReportMetric(rate(ours)/rate(tails), "of-tail")
}

// theEnd is the text of the last line.
const theEnd = "this is the end"

func bigLog(b *testing.B, path string) int64 {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	at := time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.UTC).Format(time.RFC3339Nano)
	for i := range 500_000 {
		fmt.Fprintf(w, "%s stdout F line %d %s\n", at, i, strings.Repeat("x", 80))
	}
	fmt.Fprintf(w, "%s stdout F %s\n", at, theEnd)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// lastLine cancels when the last line has come.
type lastLine struct {
	cancel func()
	last   []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.last = append(l.last, p[max(0, len(p)-len(theEnd)-1):]...)
	if bytes.HasSuffix(l.last, []byte(theEnd+"\n")) {
		l.cancel()
	}
	l.last = l.last[max(0, len(l.last)-len(theEnd)-1):]
	return len(p), nil
}

// tailOf is tail -f of a file from its beginning to the last line.
func tailOf(b *testing.B, path string) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "tail", "-c", "+1", "-f", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(&lastLine{cancel: cancel}, out) // until it is killed
	_ = cmd.Wait()
}
