package images

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
)

// world is a runtime and its pods as the property test plays them.
type world struct {
	b       *book
	limit   int
	now     time.Time
	looking map[string]bool
	pulling map[string]bool
	failed  map[string]time.Time           // when the next pull of an image may begin
	wants   map[messages.ImageKey]question // told and neither answered nor forgotten
}

type question struct {
	image  string
	policy v1.PullPolicy
}

func (w *world) do(t *rapid.T, effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case startLook:
			if w.looking[e.name] {
				t.Fatalf("two looks at %s at once", e.name)
			}
			w.looking[e.name] = true
		case startPull:
			if w.pulling[e.name] {
				t.Fatalf("two pulls of %s at once", e.name)
			}
			if w.now.Before(w.failed[e.name]) && w.waitedFor(e.name) {
				t.Fatalf("%s is pulled in its back-off", e.name)
			}
			w.pulling[e.name] = true
			if len(w.pulling) > w.limit {
				t.Fatalf("%d pulls at once", len(w.pulling))
			}
		case tellPod:
			w.told(t, e)
		}
	}
}

// waitedFor says that somebody has waited for a pull of the image since before its back-off began; without, the
// back-off is forgotten.
func (w *world) waitedFor(name string) bool {
	im := w.b.images[name]
	return im != nil && im.pull.steps > 0
}

func (w *world) told(t *rapid.T, e tellPod) {
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
	case messages.ImageFailed:
		if _, ok := w.wants[m.Key]; !ok {
			t.Fatalf("%v is told and did not ask", m.Key)
		}
		if m.Reason.Permanent || m.Reason.RetryAt.IsZero() {
			t.Fatalf("not tried again: %+v", m.Reason)
		}
	}
}

func TestBookKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			limit: rapid.IntRange(1, 3).Draw(t, "limit"), now: t0,
			looking: map[string]bool{}, pulling: map[string]bool{}, failed: map[string]time.Time{},
			wants: map[messages.ImageKey]question{},
		}
		w.b = newBook(w.limit)
		t.Repeat(map[string]func(*rapid.T){
			"ask":    w.ask,
			"forget": w.forget,
			"look":   func(t *rapid.T) { w.endLook(t, drawName(t, w.looking), drawResult(t)) },
			"pull":   func(t *rapid.T) { w.endPull(t, drawName(t, w.pulling), drawResult(t)) },
			"time":   w.pass,
			"":       w.check,
		})
		w.settle(t)
	})
}

func drawName(t *rapid.T, of map[string]bool) string {
	for _, name := range []string{"a", "b", "c", "d"} {
		if of[name] && rapid.Bool().Draw(t, "end "+name) {
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
		Image:    rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "image"),
		Policy:   rapid.SampledFrom([]v1.PullPolicy{v1.PullAlways, v1.PullIfNotPresent, v1.PullNever}).Draw(t, "policy"),
		Priority: rapid.Int64Range(0, 3).Draw(t, "priority"),
	}
	w.wants[k] = question{m.Image, m.Policy}
	w.do(t, w.b.ask(m.Image, m))
}

func (w *world) forget(t *rapid.T) {
	uid := rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "pod")
	for k := range w.wants {
		if k.UID == uid {
			delete(w.wants, k)
		}
	}
	w.do(t, w.b.forget(uid))
}

func (w *world) endLook(t *rapid.T, name string, r result) {
	delete(w.looking, name)
	w.do(t, w.b.looked(w.now, name, outcome{result: r, ref: "id of " + name, code: "X"}))
}

func (w *world) endPull(t *rapid.T, name string, r result) {
	delete(w.pulling, name)
	if delete(w.failed, name); r == failed {
		w.failed[name] = w.now.Add(backOffBase)
	}
	w.do(t, w.b.pulledOutcome(w.now, name, outcome{result: r, ref: "id of " + name, code: "X"}))
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
	if w.b.running != len(w.pulling) {
		t.Fatalf("%d slots for %d pulls", w.b.running, len(w.pulling))
	}
	for k, q := range w.wants {
		if im := w.b.images[q.image]; im == nil || im.needs[k] == nil {
			t.Fatalf("%v was lost", k)
		}
	}
	for name, im := range w.b.images {
		if (im.look.phase == busy) != w.looking[name] || (im.pull.phase == busy) != w.pulling[name] {
			t.Fatalf("%s: look %s, pull %s", name, im.look.phase, im.pull.phase)
		}
		for k, n := range im.needs {
			if _, ok := w.wants[k]; !ok {
				t.Fatalf("%v is kept and nobody wants it", k)
			}
			if im.of(n).phase == idle {
				t.Fatalf("%v waits for nothing", k)
			}
		}
	}
}

// settle lets everything succeed from here on: then everybody must be answered.
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
