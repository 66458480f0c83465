package volumes

import (
	"fmt"
	"testing"
	"time"
)

var anyTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// begun lists the pods for which an operation begins.
func begun(effects []effect) (out []string) {
	for _, e := range effects {
		switch e.what.(type) {
		case beginMount, beginUnmount:
			out = append(out, e.uid)
		}
	}
	return out
}

func TestOperationsAreBoundedAndServedInOrder(t *testing.T) {
	m := newMachine(2)
	turns := map[string]uint64{}
	var order []string
	take := func(effects []effect) {
		for _, e := range effects {
			if _, ok := e.what.(beginMount); ok {
				turns[e.uid] = e.turn
				order = append(order, e.uid)
			}
		}
	}
	for i := range 6 {
		uid := fmt.Sprint(i)
		take(m.on(uid, mountAsked{podWith(uid)}, anyTime))
		take(m.on(uid, mountAsked{podWith(uid)}, anyTime)) // twice: it still has one place
	}
	if len(order) != 2 || m.busy() != 2 || m.waiting() != 4 {
		t.Fatalf("began %v, busy %d, waiting %d", order, m.busy(), m.waiting())
	}
	for i := range 6 {
		uid := fmt.Sprint(i)
		take(m.on(uid, mountEnded{turns[uid], mountOutcome{}}, anyTime))
		if m.busy() > 2 {
			t.Fatalf("%d at a time", m.busy())
		}
	}
	if got := fmt.Sprint(order); got != "[0 1 2 3 4 5]" || m.busy() != 0 || m.waiting() != 0 {
		t.Errorf("began %v, busy %d, waiting %d", got, m.busy(), m.waiting())
	}
}

// A pod at its end whose mount waits for a place does not wait for it, and neither for its unmounting in another lane.
func TestAMountThatWaitsIsWithdrawn(t *testing.T) {
	m := newMachine(1)
	turns := map[string]uint64{}
	for _, uid := range []string{"slow", "ending", "next"} {
		for _, e := range m.on(uid, mountAsked{tokenPod(uid)}, anyTime) {
			turns[e.uid] = e.turn
		}
	}
	var got []string
	for _, e := range m.on("ending", unmountAsked{}, anyTime) {
		switch e.what.(type) {
		case beginMount:
			got = append(got, "mount "+e.uid)
		case beginUnmount:
			got = append(got, "unmount "+e.uid)
		}
	}
	if fmt.Sprint(got) != "[unmount ending]" || m.waiting() != 1 {
		t.Errorf("it does %v, and %d wait", got, m.waiting())
	}
	if got := begun(m.on("slow", mountEnded{turns["slow"], mountOutcome{lane: asking}}, anyTime)); fmt.Sprint(got) != "[next]" {
		t.Errorf("then begins %v", got)
	}
}

func TestOrphans(t *testing.T) {
	m := newMachine(10)
	m.on("mounting", mountAsked{podWith("mounting")}, anyTime)
	wish := map[string]bool{"wanted": true}
	m.onWanted(wish)
	found := []string{"mounting", "orphan", "wanted"}
	if got := fmt.Sprint(begun(m.onFound(found, anyTime))); got != "[orphan]" {
		t.Errorf("removing %v", got)
	}
	if got := begun(m.onFound(found, anyTime)); got != nil {
		t.Errorf("removing %v while that is under way", got)
	}
}

// An ask counts for one wish that leaves the pod out, since that may be the older of the two; two such wishes in a row
// say that the pod went without a word.
func TestAsksAreForgotten(t *testing.T) {
	m := newMachine(10)
	turn := m.on("u", mountAsked{podWith("u")}, anyTime)[0].turn
	m.on("u", mountEnded{turn, mountOutcome{pod: m.pods["u"].pod}}, anyTime)
	if m.pods["u"].phase != mounted {
		t.Fatal(m.pods["u"].phase)
	}
	nobody := map[string]bool{}
	sweep := func(wish map[string]bool) []string {
		m.onWanted(wish)
		return begun(m.onFound([]string{"u"}, anyTime))
	}
	for i, wish := range []map[string]bool{nobody, {"u": true}, nobody} {
		if got := sweep(wish); got != nil {
			t.Errorf("wish %d: removing %v", i, got)
		}
	}
	m.on("u", mountAsked{podWith("u")}, anyTime) // it is alive
	m.on("u", verifyEnded{m.pods["u"].turn, true}, anyTime)
	if got := sweep(nobody); got != nil {
		t.Errorf("just asked: removing %v", got)
	}
	if got := fmt.Sprint(sweep(nobody)); got != "[u]" {
		t.Errorf("forgotten: removing %v", got)
	}
}

// A pod that never had a folder is forgotten too.
func TestRefusedPodsAreForgotten(t *testing.T) {
	m := newMachine(10)
	turn := m.on("../u", mountAsked{podWith("../u")}, anyTime)[0].turn
	m.on("../u", mountEnded{turn, mountOutcome{pod: m.pods["../u"].pod, failures: []failure{{permanent: true}}}}, anyTime)
	for range forgottenIn {
		m.onWanted(nil)
	}
	m.onFound(nil, anyTime)
	m.on("../u", unmountEnded{m.pods["../u"].turn, unmountOutcome{}}, anyTime)
	if len(m.pods) != 0 {
		t.Errorf("still known: %v", m.pods)
	}
}

func TestWhatIsLeftIsNewsOnce(t *testing.T) {
	m := newMachine(1)
	for i, c := range []struct {
		left string
		news bool
	}{{"a", true}, {"a", false}, {"b", true}, {"", false}, {"b", true}} {
		if got := m.note("u", c.left); got != c.news {
			t.Errorf("%d: %q is news: %t", i, c.left, got)
		}
	}
	m.onWanted(map[string]bool{})
	m.onFound(nil, anyTime) // it is gone by other hands
	if len(m.left) != 0 {
		t.Errorf("still noted: %v", m.left)
	}
}
