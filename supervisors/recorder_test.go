package supervisors

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
)

// sizeOf returns the recorder's size of an entry, in bytes.
func sizeOf(e Entry) int { return e.bytes() }

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
	r, id := NewRecorder(), uint64(0)
	for range rounds {
		for pod := range pods {
			id++
			r.Add(said(pod, id))
		}
	}
	for pod := range pods {
		got := r.Last(said(pod, 0).Flow.Pod)
		if len(got) != rounds || got[rounds-1].ID != uint64((rounds-1)*pods+pod+1) {
			t.Fatalf("pod %d has %v", pod, ids(got))
		}
	}
}

// Over the budget, the oldest entries are dropped; a busy pod costs others only its fair share.
func TestTheRecorderKeepsItsBudget(t *testing.T) {
	r := NewRecorder()
	one := said(0, 0)
	r.budget = 100 * sizeOf(one)
	for id := range uint64(30) {
		r.Add(said(1, id))
	}
	for id := range uint64(1000) {
		r.Add(said(2, id))
	}
	if a, b := r.Last(said(1, 0).Flow.Pod), r.Last(said(2, 0).Flow.Pod); len(a) != 30 || len(b) < 70 || b[len(b)-1].ID != 999 {
		t.Errorf("one has %v, the other %v", ids(a), ids(b))
	}
	for pod := 3; pod < 1000; pod++ {
		r.Add(said(pod, uint64(pod)))
		if most := r.budget + sizeOf(one); r.bytes > most {
			t.Fatalf("it takes %d bytes of %d", r.bytes, most)
		}
	}
	count := 0
	for _, s := range r.logs {
		count += len(s.entries)
	}
	if s := r.Size(); s.Stories != count || s.Entries != count || s.Bytes != r.bytes || len(r.Last(said(1, 0).Flow.Pod)) != 0 ||
		len(r.Last(said(999, 0).Flow.Pod)) != 1 {
		t.Errorf("%+v, %d entries", s, count)
	}
}

// Each actor keeps its own number of entries.
func TestEachActorsStoryIsKept(t *testing.T) {
	r := NewRecorder()
	r.Add(Entry{ID: 1, To: messages.Images})
	for id := range uint64(logEntries + 3) {
		r.Add(Entry{ID: 10 + id, From: messages.Images, To: messages.Pods})
	}
	r.Add(Entry{ID: 2, From: messages.Images, To: messages.Runtime, Kind: OfCall}) // a leaf of images
	pods, images := messages.Pods, messages.Images
	if got := r.Select(Query{Actor: &pods}); len(got) != logEntries || got[0].ID != 13 {
		t.Errorf("pods has %d, from %d", len(got), got[0].ID)
	}
	if got := ids(r.Select(Query{Actor: &images})); got[0] != 1 || got[len(got)-1] != 2 || len(got) != logEntries+2 {
		t.Errorf("images has %v", got)
	}
	if got := r.Select(Query{Pod: messages.Images.String()}); len(got) > 0 {
		t.Errorf("a pod that is called as the actor has %v", ids(got))
	}
}

// A pod's story begins with its causes, up to the reading of a source.
func TestAStoryBeginsWithItsCauses(t *testing.T) {
	r := NewRecorder()
	at := time.Unix(100, 0)
	r.Add(Entry{ID: 1, Kind: OfWork, To: messages.File})
	r.Add(Entry{ID: 2, Cause: 1, Kind: OfWork, To: messages.File, Message: "ReadManifests"})
	r.Add(Entry{ID: 5, Cause: 4, Flow: Flow{Pod: "u"}, To: "pods/u", Began: at})
	r.Add(Entry{ID: 4, Cause: 3, To: messages.Pods}) // it ends after its consequences
	r.Add(Entry{ID: 3, Cause: 2, To: messages.File})
	r.Add(Entry{ID: 6, Cause: 5, Flow: Flow{Pod: "u"}, To: "pods/u", Began: at.Add(time.Second)})
	if got := ids(r.Last("u")); !reflect.DeepEqual(got, []uint64{2, 3, 4, 5, 6}) {
		t.Errorf("%v", got)
	}
	if got := ids(r.Select(Query{Pod: "u", After: 3})); !reflect.DeepEqual(got, []uint64{6}) {
		t.Errorf("after the third: %v", got)
	}
	if got := ids(r.Select(Query{Pod: "u", Since: at.Add(time.Second)})); !reflect.DeepEqual(got, []uint64{6}) {
		t.Errorf("since a second later: %v", got)
	}
	if err := r.Wait(t.Context(), 5); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := r.Wait(ended, 6); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

const secret = "s3cr3t"

// A digest names the thing and the reason, and never contains fields that may hold a secret.
func TestDigests(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u", Annotations: map[string]string{"a": secret}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Args: []string{secret}, Env: []v1.EnvVar{{Name: "E", Value: secret}}}}}}
	ready := &v1.PodStatus{Phase: v1.PodRunning, Message: secret,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, Message: secret}}}
	type read struct {
		name, secretValue string
		err               error
		data              map[string][]byte
	}
	for want, msg := range map[string]any{
		"pod=shop/web generation=3": messages.PodWanted{Pod: pod, Generation: 3, Last: ready},
		"generation=2 phase=running Running ready code=Backoff permanent": messages.PodStatusChanged{UID: "u", Generation: 2, Phase: "running",
			Status: ready, Waiting: &messages.Reason{Code: "Backoff", Message: secret, Cause: messages.Cause{Text: secret}, Permanent: true}},
		"pod=shop/web container=c attempt=1": messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], Attempt: 1, ImageRef: secret},
		"RunContainer pod=shop/web container=c": messages.Started{Desired: messages.RunContainer{Pod: pod,
			Container: &pod.Spec.Containers[0], ImageRef: secret}},
		"container=c code=ErrImagePull":   messages.ImageFailed{Key: messages.ImageKey{Container: "c"}, Reason: messages.Reason{Code: "ErrImagePull", Message: secret}},
		"":                                messages.VolumesMounted{UID: "u", Paths: map[string]string{"v": secret}},
		"name=a failed":                   read{name: "a", secretValue: secret, err: errors.New(secret), data: map[string][]byte{"k": []byte(secret)}},
		"name=" + strings.Repeat("x", 64): messages.ChildStarted{Name: strings.Repeat("x", 300)},
	} {
		if got := digest(msg); got != want {
			t.Errorf("%T: %q, want %q", msg, got, want)
		}
	}
}

// BenchmarkRecorder measures one message, with this many pods sending in turn.
func BenchmarkRecorder(b *testing.B) {
	for _, pods := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			sent := make([]*envelope, pods)
			for i := range sent {
				e := said(i, uint64(i))
				sent[i] = &envelope{id: e.ID, cause: 1, flow: e.Flow, from: e.From, sent: time.Now(), msg: messages.ContainerReported{
					UID: e.Flow.Pod, Name: "container", Stage: "running", Fact: &messages.ContainerFact{Name: "container", Reason: "Completed"}}}
			}
			r, to := NewRecorder(), said(0, 0).To
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				env := sent[i%pods]
				r.record(to, env, env.sent, env.sent, nil)
			}
			b.ReportMetric(float64(r.Size().Stories), "stories")
			b.ReportMetric(float64(r.bytes), "bytes")
		})
	}
}

// A long-lived pod keeps its first and its latest entries; the entry after the gap gives the number of dropped ones.
func TestAPodsStartIsKept(t *testing.T) {
	r, pod := NewRecorder(), said(1, 0).Flow.Pod
	for id := range uint64(1000) {
		r.Add(said(1, 1+id))
	}
	got := r.Last(pod)
	if len(got) != logEntries || got[0].ID != 1 || got[startEntries-1].ID != startEntries || got[logEntries-1].ID != 1000 {
		t.Fatalf("%v", ids(got))
	}
	for i, e := range got {
		if want := map[bool]int{true: 1000 - logEntries}[i == startEntries]; e.Forgotten != want {
			t.Errorf("entry %d: %d forgotten, not %d", i, e.Forgotten, want)
		}
	}
	// Other stories take its surplus first, and its start only when nothing else remains.
	r.budget = r.bytes
	for id := range uint64(startEntries) {
		r.Add(said(2, 2000+id))
	}
	if got := r.Last(pod); len(got) < logEntries-startEntries-2 || got[0].ID != 1 || got[startEntries-1].ID != startEntries {
		t.Errorf("under pressure: %v", ids(got))
	}
	for other := range 100 {
		r.Add(said(10+other, 3000))
	}
	if r.bytes > r.budget+sizeOf(said(1, 0)) {
		t.Errorf("%d bytes of %d", r.bytes, r.budget)
	}
}

// However stories come and go, the recorder's lists and counts agree.
func TestTheRecordersIndexesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRecorder()
		r.budget = rapid.IntRange(1, 60).Draw(t, "entries") * sizeOf(said(0, 0))
		for id, pod := range rapid.SliceOfN(rapid.IntRange(0, 9), 1, 300).Draw(t, "pods") {
			e := said(pod, uint64(id+1))
			if pod > 7 {
				e.Flow.Pod = ""
			}
			r.Add(e)
		}
		bytes, all := 0, 0
		for name, s := range r.logs {
			if len(s.entries) == 0 || s.name != name || s.element.Value != s {
				t.Fatalf("story %s: %+v", name, s)
			}
			for i, e := range s.entries {
				if all, bytes = all+1, bytes+e.bytes(); e.logName() != name || i > 0 && e.Seq <= s.entries[i-1].Seq {
					t.Fatalf("story %s: entry %d is %s", name, i, e)
				}
			}
		}
		if bytes != r.bytes || all != r.count || r.order.Len() != len(r.logs) || all == 0 {
			t.Fatalf("%d bytes, %d entries, %d stories in order: %+v", bytes, all, r.order.Len(), r.Size())
		}
	})
}

// Work for another pod that caused an entry is in the pod's story, with its calls.
func TestJoinedWorkIsInAStory(t *testing.T) {
	r := NewRecorder()
	r.Add(Entry{ID: 1, Flow: Flow{Pod: "v"}, To: messages.Images, Message: "PullImage"})
	r.Add(Entry{ID: 4, Cause: 2, Kind: OfCall, Flow: Flow{Pod: "v"}, From: messages.Images, To: messages.Runtime})
	r.Add(Entry{ID: 2, Cause: 1, Kind: OfWork, Flow: Flow{Pod: "v"}, To: messages.Images})
	r.Add(Entry{ID: 5, Flow: Flow{Pod: "u"}, To: "pods/u", Message: "Started"})
	r.Add(Entry{ID: 6, Cause: 3, Flow: Flow{Pod: "u"}, To: "pods/u", Message: "ImagePulled"})
	r.Add(Entry{ID: 3, Cause: 2, Flow: Flow{Pod: "v"}, To: messages.Images, Message: "pulled"})
	if got := ids(r.Last("u")); !reflect.DeepEqual(got, []uint64{2, 3, 4, 5, 6}) {
		t.Errorf("%v", got)
	}
}

// A panic is logged with its stack and with the last messages of the pod's story, the one that it is over among them.
func TestAPanicIsLoggedWithItsStory(t *testing.T) {
	s, log := startWorker(t, nil, func(_ Context, msg any) {
		if m, ok := msg.(messages.PodStatusChanged); ok && m.Phase == "sick" {
			panic("a fault")
		}
	})
	awaitWorker(t, s, there)
	s.Tell("worker", messages.PodStatusChanged{UID: "a", Phase: "well"})
	s.Tell("worker", messages.PodStatusChanged{UID: "b", Phase: "well"})
	s.Tell("worker", messages.PodStatusChanged{UID: "a", Phase: "sick"})
	awaitWorker(t, s, func(v Vitals) bool { return v.Restarts == 1 && there(v) })
	text := log.String()
	_, last, logged := strings.Cut(text, " last=")
	last, _, _ = strings.Cut(last, "\n")
	if !logged || !strings.Contains(text, "recorder_test.go") || strings.Count(last, "PodStatusChanged") != 2 {
		t.Errorf("logged:\n%s", text)
	}
}
