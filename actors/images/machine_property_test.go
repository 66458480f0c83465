package images

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/messages"
)

// world simulates the runtime and the pods.
type world struct {
	b       *machine
	limit   int
	qps     int
	burst   int
	now     time.Time
	looking map[string]bool
	pulling map[string]bool                // by image and credentials
	failed  map[string]time.Time           // when the next pull of an image with the same credentials may begin
	began   []time.Time                    // all pulls
	wants   map[messages.ImageKey]question // asked, and neither answered nor forgotten
}

type question struct {
	image       string
	policy      v1.PullPolicy
	credentials string
}

// theImages are of two registries.
var theImages = []string{"r/a", "r/b", "r/c", "s/d"}

func (w *world) do(t *rapid.T, effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case startLook:
			if w.looking[e.name] {
				t.Fatalf("two looks at %s at once", e.name)
			}
			w.looking[e.name] = true
		case startPull:
			w.begun(t, e)
		case endPull:
			if which := e.name + " " + e.id; !w.pulling[which] || w.b.images[e.name].wants(e.id) {
				t.Fatalf("%s is cut off, and needed or over", which)
			}
		case podMessage:
			w.reported(t, e)
		}
	}
}

func (w *world) begun(t *rapid.T, e startPull) {
	which := e.name + " " + e.credentials.id
	if w.pulling[which] {
		t.Fatalf("two pulls of %s at once", which)
	}
	if w.now.Before(w.failed[which]) && w.waitedFor(e.name, e.credentials.id) {
		t.Fatalf("%s is pulled in its back-off", which)
	}
	w.pulling[which] = true
	if len(w.pulling)-w.b.lent() > w.limit {
		t.Fatalf("%d pulls at once", len(w.pulling))
	}
	w.began = append(w.began, w.now)
	if w.qps == 0 {
		return
	}
	for i, at := range w.began { // no interval has more pulls than burst and rate allow
		if n, most := len(w.began)-i, float64(w.burst)+w.now.Sub(at).Seconds()*float64(w.qps); float64(n) > most+1e-6 {
			t.Fatalf("%d pulls began within %s", n, w.now.Sub(at))
		}
	}
}

// waitedFor reports whether a pull of the image has a back-off. The machine drops it with the last need.
func (w *world) waitedFor(name, id string) bool {
	im := w.b.images[name]
	return im != nil && im.pulls[id] != nil && im.pulls[id].steps > 0
}

func (w *world) reported(t *rapid.T, e podMessage) {
	switch m := e.msg.(type) {
	case messages.ImagePulled:
		q, ok := w.wants[m.Key]
		if !ok {
			t.Fatalf("%v is told and did not ask", m.Key)
		}
		if m.Ref != "id of "+q.image {
			t.Fatalf("%v asked for %s and got %s", m.Key, q.image, m.Ref)
		}
		if q.policy == v1.PullNever && m.Pulled {
			t.Fatalf("%v must not pull", m.Key)
		}
		delete(w.wants, m.Key)
	case messages.ImageAwaited:
		if _, ok := w.wants[m.Key]; !ok || m.Reason.Since.IsZero() || m.Reason.Message == "" {
			t.Fatalf("told to somebody who did not ask, or nothing: %+v", m)
		}
	case messages.ImageFailed:
		if _, ok := w.wants[m.Key]; !ok {
			t.Fatalf("%v is told and did not ask", m.Key)
		}
		if m.Reason.Permanent || m.Reason.RetryAt.IsZero() {
			t.Fatalf("not tried again: %+v", m.Reason)
		}
	}
}

func TestTheMachineKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			limit: rapid.IntRange(1, 3).Draw(t, "limit"), now: t0,
			qps: rapid.IntRange(0, 2).Draw(t, "qps"), burst: rapid.IntRange(1, 3).Draw(t, "burst"),
			looking: map[string]bool{}, pulling: map[string]bool{}, failed: map[string]time.Time{},
			wants: map[messages.ImageKey]question{},
		}
		w.b = newMachine(lanes.New(int32(w.limit), int32(w.qps), int32(w.burst)))
		t.Repeat(map[string]func(*rapid.T){
			"ask":         w.ask,
			"forget":      w.forget,
			"look":        func(t *rapid.T) { w.endLook(t, drawName(t, w.looking), drawResult(t)) },
			"pull":        func(t *rapid.T) { w.endPull(t, drawName(t, w.pulling), drawResult(t)) },
			"credentials": w.rekey,
			"time":        w.pass,
			"":            w.check,
		})
		w.settle(t)
	})
}

func drawName(t *rapid.T, of map[string]bool) string {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if rapid.Bool().Draw(t, "end "+name) {
			return name
		}
	}
	t.Skip("nothing is under way")
	return ""
}

func drawResult(t *rapid.T) result {
	return rapid.SampledFrom([]result{present, absent, failed, unreachable}).Draw(t, "result")
}

func (w *world) ask(t *rapid.T) {
	k := messages.ImageKey{
		UID:       rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "pod"),
		Container: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "container"),
	}
	m := messages.PullImage{
		Key:      k,
		Image:    rapid.SampledFrom(theImages).Draw(t, "image"),
		Policy:   rapid.SampledFrom([]v1.PullPolicy{v1.PullAlways, v1.PullIfNotPresent, v1.PullNever}).Draw(t, "policy"),
		Priority: rapid.Int64Range(0, 3).Draw(t, "priority"),
	}
	m.Pod = &v1.Pod{}
	m.Pod.Namespace = map[string]string{"w": "other"}[k.UID]
	r := req(m)
	r.credentials.id = rapid.SampledFrom([]string{"", "k"}).Draw(t, "credentials")
	w.wants[k] = question{m.Image, m.Policy, r.credentials.id}
	w.do(t, w.b.ask(w.now, r))
}

// rekey changes all Secrets.
func (w *world) rekey(t *rapid.T) {
	id := rapid.SampledFrom([]string{"", "k"}).Draw(t, "credentials")
	for k, q := range w.wants {
		q.credentials = id
		w.wants[k] = q
	}
	w.do(t, w.b.refresh(w.now, func(*v1.Pod, string) credentials { return credentials{id: id} }))
}

func (w *world) forget(t *rapid.T) {
	uid := rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "pod")
	for k := range w.wants {
		if k.UID == uid {
			delete(w.wants, k)
		}
	}
	w.do(t, w.b.forget(w.now, uid))
}

func (w *world) endLook(t *rapid.T, name string, r result) {
	delete(w.looking, name)
	w.do(t, w.b.handleLook(w.now, name, outcome{result: r, ref: "id of " + name, code: "X"}))
}

func (w *world) endPull(t *rapid.T, which string, r result) {
	delete(w.pulling, which)
	if delete(w.failed, which); r == failed {
		w.failed[which] = w.now.Add(pullRetry.First)
	}
	name, id, _ := strings.Cut(which, " ")
	w.do(t, w.b.pulledOutcome(w.now, name, id, outcome{result: r, ref: "id of " + name, code: "X"}))
}

func (w *world) pass(t *rapid.T) {
	due := w.b.due()
	if due.IsZero() {
		t.Skip("nothing is due")
	}
	if due.After(w.now) {
		w.now = due
	}
	w.do(t, w.b.tick(w.now))
}

func (w *world) check(t *rapid.T) {
	if running, _ := w.b.queue.Running(); running+w.b.lent() != len(w.pulling) {
		t.Fatalf("%d slots for %d pulls", running, len(w.pulling))
	}
	for k, q := range w.wants {
		if im := w.b.images[q.image]; im == nil || im.needs[k] == nil {
			t.Fatalf("%v was lost", k)
		}
	}
	for name, im := range w.b.images {
		if (im.look.phase == busy) != w.looking[name] {
			t.Fatalf("%s: look %s", name, im.look.phase)
		}
		for id, p := range im.pulls {
			if (p.phase == busy) != w.pulling[name+" "+id] {
				t.Fatalf("%s: pull %s", name, p.phase)
			}
			if p.phase == queued && w.b.queue.TokenAt().IsZero() && w.b.queue.May(p.line) {
				t.Fatalf("%s waits and could be pulled", name)
			}
		}
		for k, n := range im.needs {
			if _, ok := w.wants[k]; !ok {
				t.Fatalf("%v is kept and nobody wants it", k)
			}
			if n.credentials.id != w.wants[k].credentials {
				t.Fatalf("%v has other credentials than its pod", k)
			}
			if im.of(n).phase == idle {
				t.Fatalf("%v waits for nothing", k)
			}
		}
	}
}

// settle makes all calls succeed from now on, and checks that all needs are answered.
func (w *world) settle(t *rapid.T) {
	for range 1000 {
		switch {
		case len(w.looking) > 0:
			for name := range w.looking {
				w.endLook(t, name, present)
			}
		case len(w.pulling) > 0:
			for name := range w.pulling {
				w.endPull(t, name, present)
			}
		case len(w.wants) == 0:
			if len(w.b.images) != 0 {
				t.Fatalf("images are kept for nobody: %+v", w.b.inspect())
			}
			return
		default:
			w.pass(t)
		}
	}
	t.Fatalf("not answered: %v, %+v", w.wants, w.b.inspect())
}
