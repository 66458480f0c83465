package events

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func podNamed(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Spec:       v1.PodSpec{InitContainers: []v1.Container{{Name: "setup"}}, Containers: []v1.Container{{Name: "main"}}},
	}
}

func said(pod, message string) messages.RecordEvent {
	return messages.PodEvent(podNamed(pod), "main", v1.EventTypeWarning, messages.EventBackOff, message, time.Time{})
}

// all writes everything that waits, batch after batch, as an API server takes it.
func (q *queue) all(t *testing.T, now time.Time) (out []*item) {
	t.Helper()
	for {
		items := q.next(now)
		if len(items) == 0 {
			return out
		}
		out = append(out, items...)
		q.wrote(now, batchResult{done: uint64(len(items))}, 0)
	}
}

func TestAnEventIsTheKubelets(t *testing.T) {
	q := newQueue("node1", true)
	at := begin.Add(-3 * time.Second)
	m := messages.PodEvent(podNamed("web"), "setup", v1.EventTypeNormal, messages.EventPulled, "hello", at)
	m.Annotations = map[string]string{"for": "programs"}
	q.record(begin, m)
	q.record(begin, messages.NodeEvent("node1", v1.EventTypeNormal, messages.EventStarting, "Starting kubelet.", begin))
	got := q.all(t, begin)
	if len(got) != 2 || got[0].name() == got[1].name() {
		t.Fatalf("written are %v", got)
	}
	e := got[0].event
	want := v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: "web", UID: "uid-web", ResourceVersion: "7",
		FieldPath: "spec.initContainers{setup}",
	}
	if e.InvolvedObject != want || e.Namespace != "default" || e.Type != "Normal" || e.Reason != "Pulled" ||
		e.Message != "hello" || e.Count != 1 || e.Annotations["for"] != "programs" {
		t.Errorf("the event is %+v", e)
	}
	if e.Source != (v1.EventSource{Component: "kubelet", Host: "node1"}) || e.ReportingController != "kubelet" ||
		e.ReportingInstance != "node1" {
		t.Errorf("it comes from %+v, %s, %s", e.Source, e.ReportingController, e.ReportingInstance)
	}
	if !e.FirstTimestamp.Time.Equal(at) || !e.LastTimestamp.Time.Equal(at) || !strings.HasPrefix(e.Name, "web.") {
		t.Errorf("it is %s of %v to %v", e.Name, e.FirstTimestamp, e.LastTimestamp)
	}
	if n := got[1].event; n.Namespace != "default" || n.InvolvedObject.UID != "node1" || n.InvolvedObject.Namespace != "" ||
		n.InvolvedObject.FieldPath != "" {
		t.Errorf("the node's event is %+v", n)
	}
}

// Two of one moment are two.
func TestEventsOfOneMomentHaveTheirOwnNames(t *testing.T) {
	q := newQueue("n", true)
	for i := range 8 {
		q.record(begin, said("web", fmt.Sprint("message ", i)))
	}
	names := map[types.NamespacedName]bool{}
	for _, i := range q.all(t, begin) {
		names[i.name()] = true
	}
	if len(names) != 8 {
		t.Errorf("there are %d names", len(names))
	}
}

// Equal events are counted: one Event is created, and then updated.
func TestWhatIsTheSameIsCounted(t *testing.T) {
	q := newQueue("n", true)
	q.record(begin, said("web", "again"))
	first := q.all(t, begin)
	later := begin.Add(time.Minute)
	q.record(later, said("web", "again"))
	second := q.all(t, later)
	if len(first) != 1 || !first[0].create || len(second) != 1 || second[0].create || second[0].name() != first[0].name() {
		t.Fatalf("first %+v, then %+v", first[0], second[0])
	}
	if e := second[0].event; e.Count != 2 || !e.FirstTimestamp.Time.Equal(begin) || !e.LastTimestamp.Time.Equal(later) || !strings.Contains(string(second[0].patch), `"count":2`) {
		t.Errorf("it is %+v by %s", e, second[0].patch)
	}
}

// Equal pending events share one place, and are created with their count.
func TestWhatWaitsIsCountedInItsPlace(t *testing.T) {
	q := newQueue("n", true)
	for range 5 {
		q.record(begin, said("web", "again"))
	}
	q.record(begin, said("other", "else"))
	got := q.all(t, begin)
	if len(got) != 2 || !got[0].create || got[0].event.Count != 5 || got[1].event.InvolvedObject.Name != "other" {
		t.Errorf("written are %+v", got)
	}
}

// After the tenth message of one reason within ten minutes they are combined; the kubelet's figures.
func TestSimilarEventsAreCombined(t *testing.T) {
	q := newQueue("n", true)
	for i := range 15 { // at different times, which combined events are named by
		q.record(begin.Add(time.Duration(i)), said("web", fmt.Sprint("message ", i)))
	}
	got := q.all(t, begin)
	if len(got) != 10 {
		t.Fatalf("%d events", len(got))
	}
	last := got[9].event
	if last.Count != 6 || last.Message != "(combined from similar events): message 14" || last.ReportingController != "kubelet" {
		t.Errorf("the last is %+v", last)
	}
	later := begin.Add(11 * time.Minute)
	q.record(later, said("web", "message 3b"))
	if got := q.all(t, later); len(got) != 1 || got[0].event.Message != "message 3b" {
		t.Errorf("after ten minutes of silence there is %+v", got)
	}
}

// About one object there are 25 events, and then one in five minutes.
func TestOneObjectDoesNotFillTheServer(t *testing.T) {
	q := newQueue("n", true)
	writes := 0
	now := begin
	for range 100 {
		q.record(now, said("web", "again"))
		writes += len(q.all(t, now))
	}
	if writes != 25 || q.counts.Filtered != 75 {
		t.Errorf("%d writes, %d left out", writes, q.counts.Filtered)
	}
	q.record(now, said("other", "again"))
	if len(q.all(t, now)) != 1 {
		t.Error("another object has to do with it")
	}
	now = now.Add(5*time.Minute - time.Second)
	q.record(now, said("web", "again"))
	if len(q.all(t, now)) != 0 {
		t.Error("it is written before its time")
	}
	now = now.Add(2 * time.Second)
	q.record(now, said("web", "again"))
	if got := q.all(t, now); len(got) != 1 || got[0].event.Count != 102 {
		t.Errorf("after five minutes there is %+v", got)
	}
}

// The queue has a bound, and the oldest goes.
func TestTheQueueIsBounded(t *testing.T) {
	q := newQueue("n", true)
	for i := range maxWaiting + 5 {
		q.record(begin, said(fmt.Sprint("pod", i), "hello"))
	}
	if len(q.items) != maxWaiting || len(q.waiting) != maxWaiting || q.counts.Dropped != 5 {
		t.Fatalf("%d wait, %d dropped", len(q.items), q.counts.Dropped)
	}
	flight := q.next(begin)
	if flight[0].event.InvolvedObject.Name != "pod5" {
		t.Errorf("the oldest is of %s", flight[0].event.InvolvedObject.Name)
	}
	for i := range batch {
		q.record(begin, said(fmt.Sprint("new", i), "hello"))
	}
	q.wrote(begin, batchResult{left: flight, unreached: errors.New("gone")}, 0)
	if len(q.items) != maxWaiting || len(q.waiting) != maxWaiting || q.counts.Dropped != 5+batch {
		t.Errorf("%d wait, %d dropped", len(q.items), q.counts.Dropped)
	}
}

// A namespace with thousands of pods drops its own Events; of one pod the correlator accepts few. Events of other namespaces,
// of kube-system and of the node keep their places, also when a batch returns.
func TestQueue_NamespaceWithThousands(t *testing.T) {
	of := func(namespace, pod string) messages.RecordEvent {
		p := podNamed(pod)
		p.Namespace, p.UID = namespace, types.UID(namespace+pod)
		return messages.PodEvent(p, "main", v1.EventTypeWarning, messages.EventBackOff, "x", time.Time{})
	}
	q := newQueue("n", true)
	q.record(begin, messages.NodeEvent("n", v1.EventTypeNormal, messages.EventStarting, "Starting kubelet.", begin))
	for i := range 300 {
		q.record(begin, of("kube-system", fmt.Sprint("system", i)))
	}
	q.record(begin, of("other", "web"))
	flight := q.next(begin)
	for i := range 2 * maxWaiting {
		q.record(begin, of("greedy", fmt.Sprint("pod", i)))
	}
	q.wrote(begin, batchResult{left: flight, unreached: errors.New("gone")}, 0)
	q.retryAt = time.Time{}
	count := map[string]int{}
	for _, i := range q.all(t, begin) {
		count[i.event.InvolvedObject.Namespace]++
	}
	if want := map[string]int{"": 1, "kube-system": 300, "other": 1, "greedy": maxWaiting - 302}; !maps.Equal(count, want) {
		t.Errorf("written are %v, want %v", count, want)
	}
	if len(q.waiting) != 0 || q.counts.Dropped != maxWaiting+302 {
		t.Errorf("%d wait, %d were dropped", len(q.waiting), q.counts.Dropped)
	}
}

// An API server that is gone is tried with growing pauses, and everything is written in its order when it is back.
func TestWhatDoesNotReachTheServerWaits(t *testing.T) {
	q := newQueue("n", true)
	q.record(begin, said("a", "1"))
	q.record(begin, said("b", "1"))
	now := begin
	var pauses []time.Duration
	for range 8 {
		flight := q.next(now)
		if len(flight) != 2 {
			t.Fatalf("in flight are %v", flight)
		}
		if q.next(now) != nil {
			t.Fatal("two batches at once")
		}
		q.record(now, said("a", "1")) // the same happens again meanwhile
		q.wrote(now, batchResult{left: flight, unreached: errors.New("no route")}, 0.999999)
		if q.next(now) != nil || q.trouble == "" {
			t.Fatal("no pause")
		}
		pauses = append(pauses, q.retryAt.Sub(now).Round(time.Second))
		now = q.retryAt
	}
	if fmt.Sprint(pauses) != "[1s 2s 4s 8s 16s 30s 30s 30s]" {
		t.Errorf("pauses %v", pauses)
	}
	got := q.all(t, now)
	if len(got) != 2 || q.trouble != "" || q.fails != 0 {
		t.Fatalf("written are %v", got)
	}
	for _, i := range got {
		if want := map[string]int32{"a": 9, "b": 1}[i.event.InvolvedObject.Name]; !i.create || i.event.Count != want {
			t.Errorf("%s: create %v, count %d", i.event.InvolvedObject.Name, i.create, i.event.Count)
		}
	}
}

// Events older than the API server's retention are dropped.
func TestNewsGetsOld(t *testing.T) {
	q := newQueue("n", true)
	q.record(begin, said("old", "1"))
	q.record(begin.Add(30*time.Minute), said("new", "1"))
	got := q.all(t, begin.Add(61*time.Minute))
	if len(got) != 1 || got[0].event.InvolvedObject.Name != "new" || q.counts.Expired != 1 || len(q.waiting) != 0 {
		t.Errorf("written are %v; %+v", got, q.counts)
	}
}

func TestALongMessageIsCut(t *testing.T) {
	q := newQueue("n", true)
	q.record(begin, said("a", strings.Repeat("ä", 3000)+"\xff"))
	if m := q.all(t, begin)[0].event.Message; len(m) != maxMessage || strings.ContainsRune(m, '\uFFFD') {
		t.Errorf("it has %d bytes", len(m))
	}
}

// TestNoEventIsLostInTheQueue checks that each requested event is in the counts, whatever the server answers. After the last
// write, the server has each event with its full count.
func TestNoEventIsLostInTheQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue("n", true)
		now, server, sent := begin, map[types.NamespacedName]int32{}, map[string]int32{}
		var flight []*item
		answer := func(n int, reached bool) {
			for _, i := range flight[:n] {
				server[i.name()] = max(server[i.name()], i.event.Count)
			}
			r := batchResult{done: uint64(n), left: flight[n:]}
			if !reached {
				r.unreached = errors.New("gone")
			}
			q.wrote(now, r, 0.5)
			flight = nil
		}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"say", "say", "next", "answer", "time"}).Draw(t, "step") {
			case "say":
				pod := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod")
				if sent[pod] < 20 { // filtering has a test of its own
					sent[pod]++
					q.record(now, said(pod, "m"))
				}
			case "next":
				if got := q.next(now); len(got) > 0 {
					if flight != nil {
						t.Fatal("two batches at once")
					}
					flight = got
				}
			case "answer":
				if flight != nil {
					n := rapid.IntRange(0, len(flight)).Draw(t, "done")
					answer(n, n == len(flight))
				}
			case "time":
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			}
		}
		for range 3 { // it is well again
			if flight != nil {
				answer(len(flight), true)
			}
			now = now.Add(time.Minute)
			flight = q.next(now)
		}
		sum := int32(0)
		for _, n := range server {
			sum += n
		}
		want := sent["a"] + sent["b"] + sent["c"]
		if q.counts.Expired == 0 && (sum != want || len(q.items) > 0 || len(q.waiting) > 0) {
			t.Errorf("told %d, and the server has %d; waiting %d", want, sum, len(q.items))
		}
	})
}
