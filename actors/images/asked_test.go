package images_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// asks sends a person's question, runs the resulting work, and returns the only reply.
func (s *store) asks(t *testing.T, question any) any {
	t.Helper()
	s.k.Replies = nil
	s.k.Send(messages.Server, question)
	s.k.RunWork()
	if len(s.k.Replies) != 1 {
		t.Fatalf("%T is answered with %v", question, s.k.Replies)
	}
	return s.k.Replies[0]
}

// idOf returns the ID of the image with this name.
func (s *store) idOf(t *testing.T, name string) string {
	t.Helper()
	return s.pull(t, name)
}

func TestAPersonListsAndRemovesImages(t *testing.T) {
	s := collecting(t, "old:1", "wanted:1", "pause:3")
	s.config = `{"sandboxImage": "pause:3"}`
	s.k.Advance(3 * time.Minute)
	s.pull(t, "young:1")
	wanted := messages.PullImage{Key: messages.ImageKey{UID: "u", Container: "c"}, Image: "wanted:1", Policy: v1.PullIfNotPresent}
	s.k.Send(messages.PodAddress("u"), wanted)
	s.k.RunWork()
	kept := map[string]string{}
	for _, img := range s.asks(t, messages.GetImages{}).(messages.ImagesListed).Images {
		name := strings.TrimPrefix(img.Tags[0], "docker.io/library/")
		kept[name] = img.Kept
		if img.Size != mi || img.Since.IsZero() || (name == "wanted:1") != (len(img.Users) == 1 && img.Users[0].UID == "u") {
			t.Errorf("%+v", img)
		}
	}
	for name, want := range map[string]string{"old:1": "", "wanted:1": "a pod is about to use it", "pause:3": "it is that of the pods' sandboxes",
		"young:1": "it has been here for less than 2m0s, as far as is known"} {
		expectText(t, name, kept[name], want)
	}
	remove := func(name string, collect bool) string {
		t.Helper()
		got := s.asks(t, messages.RemoveImage{ID: s.idOf(t, name), Collect: collect}).(messages.ImageRemoved)
		if got.Busy || (got.Kept == "") != (got.Freed == mi) || (name == "wanted:1") != (len(got.Users) == 1 && got.Users[0].UID == "u") {
			t.Errorf("%s: %+v", name, got)
		}
		return got.Kept
	}
	expectText(t, "by the rules", remove("young:1", true), kept["young:1"])
	expectText(t, "by hand", remove("young:1", false), "")
	expectText(t, "in use", remove("wanted:1", false), "a pod is about to use it")
	expectText(t, "the sandboxes'", remove("pause:3", false), "it is that of the pods' sandboxes")
	expectText(t, "of no use", remove("old:1", true), "")
	expectText(t, "what is left", s.has(t, "old:1", "wanted:1", "young:1", "pause:3"), "wanted:1 pause:3")
	if got := s.asks(t, messages.RemoveImage{ID: "sha256:gone"}).(messages.ImageRemoved); got.Kept != "" || got.Freed != 0 {
		t.Errorf("one that is gone: %+v", got)
	}
}

// A requested removal does not wait for a collection, and does not suppress one.
func TestARemovalBesideACollection(t *testing.T) {
	s := collecting(t, "a:1", "b:1")
	s.k.Advance(5 * time.Minute) // a collection begins
	s.k.Replies = nil
	s.k.Send(messages.Server, messages.RemoveImage{ID: s.idOf(t, "a:1")})
	if len(s.k.Replies) != 1 || !s.k.Replies[0].(messages.ImageRemoved).Busy {
		t.Fatalf("%+v", s.k.Replies)
	}
	s.k.RunWork()
	s.k.Send(messages.Server, messages.RemoveImage{ID: s.idOf(t, "a:1")}) // the survey for the removal is in progress
	s.k.Send(messages.Eviction, messages.ReclaimImages{})
	s.k.Advance(5 * time.Minute) // a collection becomes due in the meantime
	s.k.RunWork()
	expectText(t, "what is left", s.has(t, "a:1", "b:1"), "")
	var reclaimed []any
	for _, m := range s.k.Take() {
		if r, ok := m.Msg.(messages.ImagesReclaimed); ok {
			reclaimed = append(reclaimed, r)
		}
	}
	if len(reclaimed) != 1 || reclaimed[0] != (messages.ImagesReclaimed{Freed: mi, Removed: 1}) {
		t.Errorf("%+v", reclaimed)
	}
	s.k.Send(messages.Server, messages.RemoveImage{ID: "sha256:gone"})
	s.k.Advance(5 * time.Minute) // a collection becomes due during a request without a removal
	s.k.RunWork()
	if len(s.k.Pending()) == 0 {
		t.Error("no collection is planned any more")
	}
}
