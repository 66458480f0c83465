package admin

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/supervisors"
)

const (
	// maxWatches limits the open streams of one listener, shared by client.
	maxWatches = 64
	// coalesce is the minimum interval between two lines of a stream: changes within it make one line.
	coalesce = 50 * time.Millisecond
)

// stream answers with lines of JSON while send runs; line returns false once the client has left.
func (h *handlers) stream(w http.ResponseWriter, r *http.Request, send func(line func(v any) bool)) error {
	release, err := h.watches.Take(shares.Client(r))
	if err != nil {
		return refuse(http.StatusTooManyRequests, "%v", err)
	}
	defer release()
	w.Header().Set("Content-Type", "application/json")
	out, lines := http.NewResponseController(w), json.NewEncoder(w)
	send(func(v any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(h.conf.WriteTimeout)) // if unsupported, the write itself fails
		return lines.Encode(v) == nil && out.Flush() == nil
	})
	return nil
}

// pause waits, and reports whether it was not interrupted.
func pause(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// watchPods streams one line of JSON per change, until the client leaves or the process ends.
func (h *handlers) watchPods(w http.ResponseWriter, r *http.Request, chosen filter, view func(*board.Pod) api.Pod) error {
	return h.stream(w, r, func(line func(any) bool) {
		ctx, seen := r.Context(), tracker{chosen: chosen, view: view}
		for now := h.conf.Board.Now(); ; {
			change, news := seen.next(now, h.nodeView(now))
			if news && (!line(change) || !pause(ctx.Done(), coalesce)) {
				return
			}
			var err error
			if now, err = h.conf.Board.After(ctx, now.Version); err != nil {
				return
			}
		}
	})
}

// events answers GET /v1/events[?watch=true][&namespace=N][&name=N] with the last events of the node, or of an object, as an
// EventList; the stream continues with an EventList of new ones.
func (h *handlers) events(w http.ResponseWriter, r *http.Request) error {
	var watch bool
	var namespace, name string
	if err := params(r, api.Params{"watch": &watch, "namespace": &namespace, "name": &name}); err != nil {
		return err
	}
	news := func(sequence uint64) (v1.EventList, uint64) {
		all, now := h.conf.Events.Since(sequence)
		out := v1.EventList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(now, 10)}, Items: []v1.Event{},
		}
		for _, e := range all {
			if (namespace == "" || namespace == e.Namespace) && (name == "" || name == e.InvolvedObject.Name) {
				out.Items = append(out.Items, *e)
			}
		}
		return out, now
	}
	first, sequence := news(0)
	if !watch {
		return answer(w, first)
	}
	return h.stream(w, r, func(line func(any) bool) {
		for next := first; line(next); next, sequence = news(sequence) {
			if h.conf.Events.Await(r.Context(), sequence) != nil {
				return
			}
		}
	})
}

// followTrace streams one line of JSON for each batch of entries, until the client leaves or the process ends.
func (h *handlers) followTrace(w http.ResponseWriter, r *http.Request, recorder *supervisors.Recorder, q supervisors.Query,
	next api.Trace,
) error {
	return h.stream(w, r, func(line func(any) bool) {
		for q.After = next.Recorder.Seq; line(next); {
			for next.Entries = nil; len(next.Entries) == 0; {
				if recorder.Wait(r.Context(), q.After) != nil || !pause(r.Context().Done(), coalesce) {
					return
				}
				next.Recorder = recorder.Size()
				next.Entries = recorder.Select(q)
				q.After = next.Recorder.Seq
				if n := len(next.Entries); n > 0 { // do not repeat an entry that came in between
					q.After = max(q.After, next.Entries[n-1].Seq)
				}
			}
		}
	})
}

// tracker computes the lines of one stream: it remembers the sent state and returns the changes. It is pure.
type tracker struct {
	chosen   filter
	view     func(*board.Pod) api.Pod
	begun    bool
	complete bool // a complete line was sent
	life     time.Time
	pods     map[types.UID]sentPod
	node     api.Node
}

// sentPod is a pod as sent last.
type sentPod struct {
	pod *board.Pod
	// sure is set if the publishing actor had audited the runtime: if the pod is missing later, it is gone. An actor that has
	// just started omits pods that it does not know yet.
	sure bool
}

// next returns the changes since the previous call, or false without any. The first call returns everything, and so does the
// first complete one.
func (t *tracker) next(s *board.Snapshot, node api.Node) (api.Change, bool) {
	complete := s.Complete()
	change := api.Change{Version: s.Version, At: s.At, Full: !t.begun || complete && !t.complete}
	pods := make(map[types.UID]sentPod, len(t.pods))
	for _, p := range t.chosen.choose(s) {
		pods[p.Pod.UID] = sentPod{pod: p, sure: s.Audited}
		if old, ok := t.pods[p.Pod.UID]; change.Full || !ok || !samePod(old.pod, p) {
			change.Pods = append(change.Pods, t.view(p))
		}
	}
	for uid, old := range t.pods {
		if _, there := pods[uid]; there {
			continue
		}
		old.sure = old.sure && s.Life.Equal(t.life)
		if complete || old.sure {
			change.Gone = append(change.Gone, api.Ref{Namespace: old.pod.Pod.Namespace, Name: old.pod.Pod.Name,
				UID: string(uid)})
		} else {
			pods[uid] = old
		}
	}
	if change.Full || !reflect.DeepEqual(t.node, node) {
		change.Node = &node
	}
	t.begun, t.complete, t.life, t.pods, t.node = true, t.complete || complete, s.Life, pods, node
	return change, change.Full || change.Node != nil || len(change.Pods) > 0 || len(change.Gone) > 0
}

// samePod compares the shown parts of a pod. It compares pointers first: a shared object has not changed.
func samePod(x, y *board.Pod) bool {
	return x.Source == y.Source && x.Phase == y.Phase && x.Ending == y.Ending && same(x.Pod, y.Pod) &&
		same(x.Status, y.Status) && same(x.Waiting, y.Waiting) && same(x.Quarantine, y.Quarantine)
}

func same[T any](x, y *T) bool { return x == y || reflect.DeepEqual(x, y) }
