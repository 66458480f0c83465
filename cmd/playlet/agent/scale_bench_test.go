package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// BenchmarkScale is a node with increasing numbers of pods over the simulated runtime in another process. It measures the time
// until half of them and all of them run, their cost of processor and memory, the deepest mailbox, and the cost of an idle node.
// Costs that grow faster than the number of pods show in the figures per pod.
//
//	go test ./cmd/playlet -run '^$' -bench Scale -benchtime 1x
func BenchmarkScale(b *testing.B) {
	for _, pods := range []int{110, 500, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) { benchmarkScale(b, pods) })
	}
}

func benchmarkScale(b *testing.B, pods int) {
	const window = 10 * time.Second
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // any remains are in the machine's temporary folder
	socket := filepath.Join(dir, "s")
	startOtherSide(b, socket)
	for b.Loop() {
		r := newRig(b, sim.Options{}, "--container-runtime-endpoint=unix://"+socket, "--max-pods=1000")
		r.measured = true
		r.start(nil)
		for !r.agent.observatory.board.Now().Complete() {
			time.Sleep(time.Millisecond)
		}
		empty, cpu, began := resident(b), processorTime(b), time.Now()
		for i := range pods {
			r.write(fmt.Sprintf("p%04d.yaml", i), manifest(fmt.Sprintf("p%04d", i), "Always", nil, []string{"main image"}))
		}
		half := runningPods(b, r, pods/2).Sub(began)
		all := runningPods(b, r, pods).Sub(began)
		perPod := func(v float64) float64 { return v / float64(pods) }
		b.ReportMetric(half.Seconds(), "half-s")
		b.ReportMetric(all.Seconds(), "all-s")
		b.ReportMetric(perPod(float64((processorTime(b)-cpu).Microseconds())/1000), "cpu-ms/pod")
		b.ReportMetric(perPod(float64(resident(b)-empty)/1024), "KiB/pod")
		deepest, who := mailboxes(b, r)
		b.ReportMetric(float64(deepest), "mailbox-"+who)
		idle, since := processorTime(b), time.Now()
		time.Sleep(window) // the measured period
		b.ReportMetric(perPod(float64((processorTime(b)-idle).Microseconds())/time.Since(since).Seconds()), "idle-µs/s/pod")
		for i := range pods {
			r.remove(fmt.Sprintf("p%04d.yaml", i))
		}
		ending := time.Now()
		for len(r.agent.observatory.board.Now().Pods) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		b.ReportMetric(time.Since(ending).Seconds(), "gone-s")
		r.stop()
	}
}

// runningPods waits until that number of pods runs, and returns the time.
func runningPods(b *testing.B, r *rig, want int) time.Time {
	b.Helper()
	for deadline := time.Now().Add(10 * waitLimit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		n := 0
		for _, p := range r.agent.observatory.board.Now().Pods {
			if p.Status != nil && p.Status.Phase == v1.PodRunning {
				n++
			}
		}
		if n >= want {
			return time.Now()
		}
	}
	b.Fatalf("fewer than %d pods run", want)
	return time.Time{}
}

// mailboxes returns the largest number of messages that waited for one actor, and the kind of that actor.
func mailboxes(b *testing.B, r *rig) (int64, string) {
	b.Helper()
	var deepest int64
	who := ""
	for _, a := range r.agent.system.Actors() {
		answer, err := r.agent.system.Ask(b.Context(), a, messages.GetInspection{})
		if err != nil {
			b.Fatal(err)
		}
		if in := answer.(messages.Inspection); in.MailboxMax > deepest {
			deepest, who = in.MailboxMax, in.Kind
		}
	}
	return deepest, who
}

// resident returns the resident memory of the process, in bytes, after a collection.
func resident(b *testing.B) int {
	b.Helper()
	runtime.GC()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "RssAnon:") })
	kib := 0
	if i < 0 {
		b.Fatal("/proc/self/status does not say RssAnon")
	}
	if _, err := fmt.Sscanf(lines[i], "RssAnon: %d kB", &kib); err != nil {
		b.Fatal(err)
	}
	return kib << 10
}
