package pods

import (
	"fmt"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// usersReported returns the pods last sent to objects, and whether there was a message.
func usersReported(k *supervisortest.Kit) (names string, sent bool) {
	for _, m := range k.Take() {
		if w, ok := m.Msg.(messages.ObjectsWanted); ok && m.To == messages.Objects {
			names, sent = "", true
			for _, p := range w.Pods {
				names += p.Name + " "
			}
		}
	}
	return names, sent
}

// objects receives the API server's pods alone: after a change, with each sweep, and after its own restart.
func TestObjectsHearsWhoUsesThem(t *testing.T) {
	k := begin(t)
	audit(k)
	expect := func(what, want string, wantSent bool) {
		t.Helper()
		if got, sent := usersReported(k); got != want || sent != wantSent {
			t.Errorf("%s: told %v %q, want %v %q", what, sent, got, wantSent, want)
		}
	}
	wants(k, messages.File, pod("static", "s"))
	k.Advance(sweepEvery)
	expect("static pods alone", "", false)
	web, more := pod("web", "a"), pod("more", "b")
	for _, p := range []map[string]string{web.Annotations, more.Annotations} {
		if p != nil {
			t.Fatal("these have annotations")
		}
	}
	web.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	more.Annotations = web.Annotations
	wants(k, other, web)
	expect("a pod", "web ", true)
	wants(k, other, web)
	expect("nothing new", "", false)
	wants(k, other, web, more)
	expect("another pod", "web more ", true)
	k.Advance(sweepEvery)
	expect("a sweep", "web more ", true)
	k.Send(messages.Node, messages.ServiceStarted{Service: messages.Objects})
	for _, m := range k.Outbox {
		if _, forwarded := m.Msg.(messages.ServiceStarted); forwarded {
			t.Errorf("%s is told that objects has started", m.To)
		}
	}
	expect("objects has started", "web more ", true)
	wants(k, other)
	k.Take()
	for _, uid := range []string{"a", "b"} {
		k.Send(messages.PodAddress(uid), messages.PodEnded{UID: uid, Gone: true})
		k.Send(messages.Pods, messages.ChildStopped{Name: uid})
	}
	expect("all gone", "", true)
	k.Advance(sweepEvery)
	expect("again", "", true)
	if fmt.Sprint(k.Ignored) != "[]" {
		t.Errorf("ignored %v", k.Ignored)
	}
}
