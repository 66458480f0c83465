package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// BenchmarkRecording compares the cost of the flight recorder with the processor time of a pod's start. One figure is the number
// of entries per start times the time per entry. The other is the median difference, with its quartiles, of pairs of runs with
// the recorder and without. The runtime is simulated; over a real one, a start costs the agent several times as much (task
// bench).
func BenchmarkRecording(b *testing.B) {
	const pods, rounds = 400, 21
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // any remains are in the machine's temporary folder
	socket := filepath.Join(dir, "s")
	for b.Loop() {
		var with, differences []float64
		var entries float64
		for round := range rounds {
			cost := map[bool]float64{}
			for _, off := range []bool{round%2 == 1, round%2 == 0} { // each goes first in turn
				var n float64
				if cost[off], n = startCost(b, socket, pods, off); !off {
					entries = n
				}
			}
			if round > 0 { // in the first, all is cold
				with = append(with, cost[false])
				differences = append(differences, 100*(cost[false]-cost[true])/cost[false])
			}
		}
		slices.Sort(with)
		slices.Sort(differences)
		perStart := with[len(with)/2]
		recorded := max(costOf(b, podFacts)-costOf(b, func(i int) any { return routine{podFacts(i).(messages.ContainerReported)} }), 0)
		b.ReportMetric(recorded, "ns/entry")
		b.ReportMetric(entries, "entries/start")
		b.ReportMetric(perStart/1e6, "cpu-ms/start")
		b.ReportMetric(100*recorded*entries/perStart, "recording-%")
		b.ReportMetric(differences[len(differences)/2], "interleaved-%") // between its quartiles, half of the pairs are
		b.ReportMetric(differences[len(differences)/2]*perStart/1e5, "interleaved-us/start")
		b.ReportMetric(differences[len(differences)/4], "interleaved-lower-%")
		b.ReportMetric(differences[len(differences)*3/4], "interleaved-upper-%")
	}
}

// startCost is the processor time of one pod's start, in nanoseconds, and how many entries the recorder has of it.
func startCost(b *testing.B, socket string, pods int, off bool) (cost, entries float64) {
	b.Helper()
	_, _, stop := startOtherSide(b, socket) // a runtime with nothing of the run before
	defer stop()
	r := newRig(b, sim.Options{}, "--container-runtime-endpoint=unix://"+socket, "--max-pods=1000")
	r.measured = true
	r.start(nil)
	defer r.stop()
	for !r.agent.observatory.board.Now().Complete() {
		time.Sleep(time.Millisecond)
	}
	recorder := r.agent.system.Recorder()
	if off {
		recorder.TurnOff()
	}
	before, cpu := recorder.Size().Seq, processorTime(b)
	for i := range pods {
		r.write(fmt.Sprintf("p%04d.yaml", i), manifest(fmt.Sprintf("p%04d", i), "Always", nil, []string{"main image"}))
	}
	runningPods(b, r, pods)
	cost = float64((processorTime(b) - cpu).Nanoseconds()) / float64(pods)
	return cost, float64(recorder.Size().Seq-before) / float64(pods)
}

// routine is a message that is not recorded.
type routine struct{ messages.ContainerReported }

func (routine) Routine() {}

// facts are messages of a hundred pods in turn.
func podFacts(i int) any {
	return messages.ContainerReported{UID: fmt.Sprintf("%036d", i%100), Name: "container", Stage: "running",
		Fact: &messages.ContainerFact{Name: "container", Reason: "Completed"}}
}

// costOf is the processor time of one such message, in nanoseconds: the least of several rounds, as others run beside.
func costOf(b *testing.B, make func(int) any) float64 {
	b.Helper()
	const rounds, count = 5, 100_000
	msgs := [100]any{}
	for i := range msgs {
		msgs[i] = make(i)
	}
	done := 0
	reached := map[int]chan struct{}{}
	for round := range rounds {
		reached[(round+1)*count] = newSignal()
	}
	s, err := supervisors.Start(supervisors.Options{Tree: &supervisors.Row{Kind: "node"},
		Constructors: map[supervisors.Kind]supervisors.Constructor{"node": func(string) supervisors.Actor {
			return countingActor(func() {
				if done++; reached[done] != nil {
					close(reached[done])
				}
			})
		}}})
	if err != nil {
		b.Fatal(err)
	}
	least := 0.0
	for round := range rounds {
		began := processorTime(b)
		for i := range count {
			s.Tell(messages.Node, msgs[i%len(msgs)])
		}
		<-reached[(round+1)*count]
		if cost := float64((processorTime(b) - began).Nanoseconds()) / count; round == 0 || cost < least {
			least = cost
		}
	}
	if err := s.Shutdown(b.Context()); err != nil {
		b.Error(err)
	}
	return least
}

func newSignal() chan struct{} { return make(chan struct{}) }

type countingActor func()

func (c countingActor) Receive(_ supervisors.Context, msg any) {
	if _, first := msg.(messages.Started); !first {
		c()
	}
}
