package apiclient

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that is stopped while an event waits to be taken leaves nothing behind.
func TestAWatchThatIsStoppedEnds(t *testing.T) {
	inner, seen := watch.NewFake(), make(chan watch.Event, 1)
	o := Observe(inner, slog.New(slog.DiscardHandler), "", func(e watch.Event) { seen <- e })
	inner.Add(&v1.Pod{})
	<-seen // the event has arrived, and has no receiver
	o.Stop()
	for until := time.Now().Add(time.Minute); !inner.IsStopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it goes on")
		}
	}
}

func TestAPanicOfALookEndsTheWatch(t *testing.T) {
	inner := watch.NewFake()
	var out bytes.Buffer
	o := Observe(inner, slog.New(slog.NewTextHandler(&out, nil)), "the look", func(watch.Event) { panic("broken") })
	inner.Add(&v1.Pod{})
	for range o.ResultChan() { // until it is closed
		t.Error("an event was passed on")
	}
	if said := out.String(); !strings.Contains(said, "the look") || !strings.Contains(said, "broken") {
		t.Errorf("the log: %s", said)
	}
	o.Stop()
}
