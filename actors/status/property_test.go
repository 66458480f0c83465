package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/messages"
)

// world is the machine with an API server that is slow, watched late, and written to by other clients.
type world struct {
	t        *rapid.T
	tb       testing.TB
	m        *model
	b        *machine
	now      time.Time
	lists    []messages.APIPodsObserved // sent and not yet received
	wants    map[string]messages.PodStatusWanted
	underWay map[string]*job
	last     map[string]*job // the last status job of a pod, if nothing has changed since
}

// begin takes the machine's next writes, and checks them.
func (w *world) begin() {
	jobs, _ := w.b.take(w.now)
	for _, j := range jobs {
		if w.underWay[j.key] != nil {
			w.t.Fatalf("two writes at a time for %s", j.key)
		}
		if j.verb == patchStatus && equality.Semantic.DeepEqual(j.from, j.to) {
			w.t.Fatalf("a write that changes nothing for %s", j.key)
		}
		if was := w.last[j.key]; was != nil && j.verb == patchStatus && was.uid == j.uid &&
			equality.Semantic.DeepEqual(was.to, j.to) {
			w.t.Fatalf("%s is told the same again", j.key)
		}
		w.underWay[j.key] = j
	}
	if len(w.underWay) > writers {
		w.t.Fatalf("%d writes at a time", len(w.underWay))
	}
}

// others records a change by another client: statuses may have to be written again.
func (w *world) others() { clear(w.last) }

func (w *world) answer(fails bool) {
	for _, key := range rapid.Permutation([]string{"pod/u1", "pod/u2", "pod/u3", "pod/u4", "static/default/s1",
		"static/default/s2"}).Draw(w.t, "whose") {
		j := w.underWay[key]
		if j == nil {
			continue
		}
		delete(w.underWay, key)
		if !fails {
			a := w.m.answered(w.tb, j)
			w.b.handleResult(w.now, a)
			delete(w.last, key)
			if a.outcome == done && j.verb == patchStatus && equality.Semantic.DeepEqual(&a.pod.Status, j.to) {
				w.last[key] = j
			}
			return
		}
		if rapid.Bool().Draw(w.t, "though it was done") {
			_, _ = w.m.do(w.tb, j)
			w.others()
		}
		w.b.handleResult(w.now, failing(j, rapid.SampledFrom([]error{code(500), code(503), code(403), code(409),
			errors.New("cut off")}).Draw(w.t, "error")))
		return
	}
}

func (w *world) tell(uid string) {
	p := w.m.pods["default/"+uid]
	if p == nil {
		p = object(uid, uid)
	}
	m := desired(p, statusOf(rapid.Bool().Draw(w.t, "ready"), int32(rapid.IntRange(0, 2).Draw(w.t, "restarts"))))
	m.UID, m.Over = uid, rapid.IntRange(0, 4).Draw(w.t, "over") == 0
	w.wants[uid] = m
	w.b.setDesired(m)
}

func (w *world) tellStatic(name string) {
	hash := rapid.SampledFrom([]string{"h1", "h2"}).Draw(w.t, "hash")
	m := staticWanted(static(name, hash), statusOf(rapid.Bool().Draw(w.t, "ready"), 0))
	m.UID = name + hash
	delete(w.wants, name+map[string]string{"h1": "h2", "h2": "h1"}[hash])
	w.wants[m.UID] = m
	w.tellAll()
}

func (w *world) tellAll() {
	all := messages.PodStatusesWanted{Heard: true}
	for _, m := range w.wants {
		all.Pods = append(all.Pods, m)
	}
	w.b.replaceDesired(all)
}

// meddle makes a change by another client at the API server.
func (w *world) meddle() {
	name := rapid.SampledFrom([]string{"u1", "u2", "u3", "u4", "s1", "s2"}).Draw(w.t, "pod")
	p := w.m.pods["default/"+name]
	w.others()
	if p == nil {
		if strings.HasPrefix(name, "u") {
			w.m.put(object(name, name))
		}
		return
	}
	p = p.DeepCopy()
	switch rapid.SampledFrom([]string{"delete", "force", "condition", "unready", "hold"}).Draw(w.t, "what") {
	case "delete":
		p.DeletionTimestamp = new(at(0))
		w.m.put(p)
	case "force":
		w.m.remove(p)
	case "condition":
		p.Status.Conditions = append(p.Status.Conditions, cond(v1.PodConditionType(fmt.Sprintf("c%d", w.m.version)),
			v1.ConditionTrue, 0))
		w.m.put(p)
	case "unready":
		if c := condition(&p.Status, v1.PodReady); c != nil {
			c.Status = v1.ConditionUnknown
		}
		w.m.put(p)
	case "hold":
		if strings.HasPrefix(name, "u") {
			p.Finalizers = []string{"example.com/hold"}
			w.m.put(p)
		}
	}
}

// settle delivers every message and completes every write, until nothing changes.
func (w *world) settle() {
	w.tellAll()
	for range 500 {
		w.b.observe(messages.APIPodsObserved{Pods: w.m.list(), At: w.now})
		w.begin()
		_, again := w.b.take(w.now)
		if len(w.underWay) == 0 && (again.IsZero() || w.held()) && !w.believing() {
			return
		}
		for key, j := range w.underWay {
			delete(w.underWay, key)
			delete(w.last, key)
			w.b.handleResult(w.now, w.m.answered(w.tb, j))
		}
		w.now = w.now.Add(5 * time.Second)
	}
	for _, l := range w.b.lines {
		w.t.Logf("%s: next %+v, busy %v, due %v, belief %+v, trouble %+v", l.key, l.next, l.busy, l.due,
			l.cached, l.failure)
	}
	w.t.Fatalf("it does not come to rest: under way %v, gate %+v, busy %d", w.underWay, w.b.server, w.b.busy)
}

// held reports whether only deletions of objects with finalizers are pending.
func (w *world) held() bool {
	for l := range w.b.todo {
		if l.next.verb != deletePod || l.observed == nil || len(l.observed.Finalizers) == 0 {
			return false
		}
	}
	return true
}

// believing reports whether the machine still prefers a write's result to the observed object.
func (w *world) believing() bool {
	for _, l := range w.b.lines {
		if l.cached != nil && l.cached.pod != nil {
			return true
		}
	}
	return false
}

// TestItEndsAsWanted checks that the API server ends in the desired state, whatever happens in whatever order.
func TestItEndsAsWanted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			t: rt, tb: t, m: newModel(), b: newMachine("node", func() float64 { return 0.5 }), now: noon,
			wants: map[string]messages.PodStatusWanted{}, underWay: map[string]*job{}, last: map[string]*job{},
		}
		node := &v1.Node{}
		node.UID = "node-uid"
		w.b.register(node)
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"meddle", "tell", "static", "drop", "watch", "arrive", "answer", "fail",
				"time"}).Draw(rt, "step") {
			case "meddle":
				w.meddle()
			case "tell":
				w.tell(rapid.SampledFrom([]string{"u1", "u2", "u3", "u4"}).Draw(rt, "uid"))
			case "static":
				w.tellStatic(rapid.SampledFrom([]string{"s1", "s2"}).Draw(rt, "name"))
			case "drop":
				delete(w.wants, rapid.SampledFrom([]string{"u1", "u2", "s1h1", "s1h2", "s2h1"}).Draw(rt, "uid"))
				w.others()
				w.tellAll()
			case "watch":
				w.lists = append(w.lists, messages.APIPodsObserved{Pods: w.m.list(), At: w.now})
			case "arrive":
				if len(w.lists) > 0 {
					w.b.observe(w.lists[0])
					w.lists = w.lists[1:]
				}
			case "answer":
				w.answer(false)
			case "fail":
				w.answer(true)
			case "time":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second)
			}
			w.begin()
		}
		w.settle()
		w.check()
	})
}

func (w *world) check() {
	mirrors := map[string]string{}
	for uid, m := range w.wants {
		if m.Static {
			mirrors[m.Pod.Name] = strings.TrimPrefix(uid, m.Pod.Name)
			continue
		}
		p := w.m.pods["default/"+uid]
		if p == nil || p.UID != m.Pod.UID {
			continue
		}
		if m.Over && p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			w.t.Errorf("%s is over and still there", uid)
		}
		if (m.Over || m.Pod.DeletionTimestamp != nil) && p.DeletionTimestamp == nil {
			continue // another pod of this UID was deleted: no status is written
		}
		want := merge(p, m.Status, w.now)
		if m.Over {
			finalstatus.Settle(&p.Spec, want, w.now)
		}
		if !equality.Semantic.DeepEqual(want, &p.Status) {
			w.t.Errorf("%s says\n%+v\nand not\n%+v", uid, p.Status, *want)
		}
	}
	for _, p := range w.m.pods {
		hash := mirrors[p.Name]
		if isMirror(p) && (p.Annotations[mirrorAnnotation] != hash || p.DeletionTimestamp != nil) {
			w.t.Errorf("the mirror pod %s is of %q, want %q", p.Name, p.Annotations[mirrorAnnotation], hash)
		}
		delete(mirrors, p.Name)
	}
	if len(mirrors) > 0 {
		w.t.Errorf("mirror pods are missing: %v", mirrors)
	}
}
