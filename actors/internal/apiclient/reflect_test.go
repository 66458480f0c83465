package apiclient

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that is stopped while an event waits to be taken leaves nothing behind.
func TestAWatchThatIsStoppedEnds(t *testing.T) {
	inner, seen := watch.NewFake(), make(chan watch.Event, 1)
	o := Observe(inner, func(e watch.Event) bool {
		seen <- e
		return true
	})
	inner.Add(&v1.Pod{})
	<-seen // it is on its way, and nobody takes it
	o.Stop()
	for until := time.Now().Add(time.Minute); !inner.IsStopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it goes on")
		}
	}
}

func TestALookEndsTheWatch(t *testing.T) {
	inner := watch.NewFake()
	o := Observe(inner, func(watch.Event) bool { return false })
	inner.Add(&v1.Pod{})
	for range o.ResultChan() { // until it is closed
		t.Error("an event was passed on")
	}
	o.Stop()
}
