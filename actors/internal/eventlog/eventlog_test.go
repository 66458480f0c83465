package eventlog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/shares"
)

func event(name string, count int32) *v1.Event {
	return &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Count: count}
}

// Events survive a restart, bounded in number and without duplicates.
func TestEventsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.json")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range Room + 3 {
		l.Put(event(fmt.Sprint(i), 1))
	}
	l.Put(event("7", 2))
	if err := l.Save(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, sequence := again.Since(0)
	if last := got[len(got)-1]; len(got) != Room || got[0].Name != "3" || last.Name != "7" || last.Count != 2 {
		t.Errorf("%d, from %s to %s (%d)", len(got), got[0].Name, last.Name, last.Count)
	}
	again.Put(event("new", 1))
	if err := again.Await(t.Context(), sequence); err != nil {
		t.Error(err)
	}
	if got, _ := again.Since(sequence); len(got) != 1 || got[0].Name != "new" {
		t.Errorf("news are %v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(); err != nil || exists(path) {
		t.Errorf("it writes what it has written: %v", err)
	}
}

// A damaged file is reported, and the log starts empty.
func TestADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if err == nil || l == nil {
		t.Fatal("nothing is said of it")
	}
	l.Put(event("a", 1))
	if err := l.Save(); err != nil || !exists(path) {
		t.Errorf("it is not written: %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A pod that makes thousands of events replaces its own.
func TestLog_OneMakesThousands(t *testing.T) {
	l, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	put := func(namespace, name string) {
		e := event(name, 1)
		e.InvolvedObject = v1.ObjectReference{Namespace: namespace, UID: types.UID(namespace)}
		l.Put(e)
	}
	if keys := Keys(&v1.Event{}); keys[0] != shares.SystemKey {
		t.Errorf("an event of the node has the keys %q", keys)
	}
	put("", "node")
	put("other", "web")
	for i := range 2 * Room {
		put("greedy", fmt.Sprint("greedy-", i))
	}
	got, _ := l.Since(0)
	if len(got) != Room || got[0].Name != "node" || got[1].Name != "web" || got[2].Name != fmt.Sprint("greedy-", Room+2) {
		t.Errorf("%d events, the first are of %s, %s, %s", len(got), got[0].Name, got[1].Name, got[2].Name)
	}
}
