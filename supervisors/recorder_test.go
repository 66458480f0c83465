package supervisors

import (
	"fmt"
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

func said(pod int, id uint64) Entry {
	uid := fmt.Sprintf("%036d", pod)
	return Entry{ID: id, Flow: Flow{Pod: uid}, From: messages.Pods, To: messages.PodAddress(uid), Message: "PodWanted"}
}

func ids(entries []Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

// A thousand pods that speak in turn each keep their last words: none pushes another out.
func TestEachOfManyPodsKeepsItsLastMessages(t *testing.T) {
	const pods, rounds = 1000, 20
	r, id := newRecorder(), uint64(0)
	for range rounds {
		for pod := range pods {
			id++
			r.add(said(pod, id))
		}
	}
	for pod := range pods {
		got := r.Last(said(pod, 0).Flow.Pod)
		if len(got) != rounds || got[rounds-1].ID != uint64((rounds-1)*pods+pod+1) {
			t.Fatalf("pod %d has %v", pod, ids(got))
		}
	}
}

// What is over the budget goes oldest first; a pod that speaks often costs others nothing but its own share.
func TestTheRecorderKeepsItsBudget(t *testing.T) {
	r := newRecorder()
	one := said(0, 0)
	r.budget = 100 * (&note{Entry: one}).bytes()
	for id := range uint64(10) {
		r.add(said(1, id))
	}
	for id := range uint64(1000) {
		r.add(said(2, id))
	}
	if a, b := r.Last(said(1, 0).Flow.Pod), r.Last(said(2, 0).Flow.Pod); len(a) != 10 || len(b) != podEntries ||
		b[0].ID != 1000-podEntries {
		t.Errorf("one has %v, the other %v", ids(a), ids(b))
	}
	for pod := 3; pod < 1000; pod++ {
		r.add(said(pod, uint64(pod)))
		if most := r.budget + (&note{Entry: one}).bytes(); r.bytes > most {
			t.Fatalf("it takes %d bytes of %d", r.bytes, most)
		}
	}
	count := 0
	for n := r.oldest; n != nil; n = n.after {
		count++
	}
	if len(r.pods) != count || r.Last(said(1, 0).Flow.Pod) != nil || len(r.Last(said(999, 0).Flow.Pod)) != 1 {
		t.Errorf("%d pods, %d entries", len(r.pods), count)
	}
}

// The node's own story is a ring of its own.
func TestTheNodesStoryIsKept(t *testing.T) {
	r := newRecorder()
	for id := range uint64(nodeEntries + 3) {
		r.add(Entry{ID: id})
	}
	if got := r.Last(""); len(got) != nodeEntries || got[0].ID != 3 || got[nodeEntries-1].ID != nodeEntries+2 {
		t.Errorf("it has %d, from %d to %d", len(got), got[0].ID, got[len(got)-1].ID)
	}
}

// BenchmarkRecorder is what one message costs, where so many pods speak in turn.
func BenchmarkRecorder(b *testing.B) {
	for _, pods := range []int{100, 500, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			entries := make([]Entry, pods)
			for i := range entries {
				entries[i] = said(i, uint64(i))
			}
			r := newRecorder()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.add(entries[i%pods])
			}
			b.ReportMetric(float64(len(r.pods)), "pods")
		})
	}
}
