package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// otherSide is the variable with the socket of the simulated runtime that another process serves. The benchmark then measures
// only the agent.
const otherSide = "PLAYLET_BENCH_RUNTIME"

// TestOtherSideOfTheBenchmark is that process: a simulated runtime, and the targets of HTTP, TCP and gRPC probes. It prints
// their ports, and ends when its standard input does.
func TestOtherSideOfTheBenchmark(t *testing.T) {
	socket := os.Getenv(otherSide)
	if socket == "" {
		t.Skip("it is the other process of BenchmarkProbes")
	}
	runtime, err := sim.Start(sim.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.Close()
	pages, checks := listening(t), listening(t)
	web := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	calls := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(calls, health.NewServer())
	go func() { _ = web.Serve(pages) }()    // ends with Close
	go func() { _ = calls.Serve(checks) }() // ends with Stop
	fmt.Printf("ports %d %d\n", pages.Addr().(*net.TCPAddr).Port, checks.Addr().(*net.TCPAddr).Port)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
	calls.Stop()
	if err := web.Close(); err != nil {
		t.Error(err)
	}
}

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// BenchmarkProbes is a thousand containers, in a hundred pods, with a probe of one kind every second: the agent's processor
// time for each second, and how late probes begin.
//
//	go test ./cmd/playlet -run '^$' -bench Probes -benchtime 1x
func BenchmarkProbes(b *testing.B) {
	for _, c := range []struct{ name, action string }{
		{"none", ""}, {"exec", "exec: {command: [check]}"}, {"http", "httpGet: {path: /, port: PAGES}"},
		{"tcp", "tcpSocket: {port: PAGES}"}, {"grpc", "grpc: {port: CHECKS}"},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkProbes(b, c.action) })
	}
}

func benchmarkProbes(b *testing.B, action string) {
	const pods, containers, window = 100, 10, 10 * time.Second
	ip := ownAddress()
	if ip == "" {
		b.Skip("this machine has no address that a node may have")
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // any remains are in the machine's temporary folder
	socket := filepath.Join(dir, "s")
	pages, checks, _ := startOtherSide(b, socket)
	action = strings.NewReplacer("PAGES", pages, "CHECKS", checks).Replace(action)

	r := newRig(b, sim.Options{}, "--container-runtime-endpoint=unix://"+socket, "--node-ip="+ip)
	for i := range pods {
		var m strings.Builder
		fmt.Fprintf(&m, "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec:\n  hostNetwork: true\n  containers:\n", i)
		for n := range containers {
			fmt.Fprintf(&m, "  - name: c%d\n    image: image\n", n)
			if action != "" {
				fmt.Fprintf(&m, "    readinessProbe: {periodSeconds: 1, %s}\n", action)
			}
		}
		r.write(fmt.Sprintf("p%d.yaml", i), m.String())
	}
	r.start(nil)
	ready := func() (n int) {
		for _, p := range r.agent.observatory.board.Now().Pods {
			for i := 0; p.Status != nil && i < len(p.Status.ContainerStatuses); i++ {
				if p.Status.ContainerStatuses[i].Ready {
					n++
				}
			}
		}
		return n
	}
	for deadline := time.Now().Add(waitLimit); ready() < pods*containers; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d containers are ready", ready(), pods*containers)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		before, began := processorTime(b), time.Now()
		time.Sleep(window) // the measured period
		b.ReportMetric(float64((processorTime(b)-before).Milliseconds())/time.Since(began).Seconds(), "cpu-ms/s")
	}
	b.StopTimer()
	answer, err := r.agent.system.Ask(b.Context(), messages.Prober, messages.GetInspection{})
	if err != nil {
		b.Fatal(err)
	}
	is := answer.(messages.Inspection).Detail.(prober.Inspection)
	b.ReportMetric(float64(is.Late50.Microseconds())/1000, "late-p50-ms")
	b.ReportMetric(float64(is.Late99.Microseconds())/1000, "late-p99-ms")
	if n := ready(); n != pods*containers {
		b.Errorf("%d containers are ready in the end", n)
	}
}

// startOtherSide starts the other process, and gives the ports of its servers. It ends at stop, or with the benchmark.
func startOtherSide(b *testing.B, socket string) (pages, checks string, stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOtherSideOfTheBenchmark$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), otherSide+"="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	stop = sync.OnceFunc(func() {
		if err := in.Close(); err != nil {
			b.Error(err)
		}
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		cancel()
	})
	b.Cleanup(stop)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "ports %s %s", &pages, &checks); n == 2 {
			return pages, checks, stop
		}
	}
	b.Fatalf("the other process says no ports: %v", lines.Err())
	return "", "", stop
}

// ownAddress is an address of this machine that a node may have.
func ownAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
