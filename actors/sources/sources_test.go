package sources

import (
	"testing"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func start(t *testing.T, children ...messages.Address) *supervisortest.Kit {
	t.Helper()
	return supervisortest.New(t, messages.Sources, New(Options{Sources: children})("sources"))
}

func TestPodsStartedAnewIsReportedByEverySource(t *testing.T) {
	k := start(t, messages.File, "sources/url")
	if sent := k.Take(); len(sent) != 0 {
		t.Fatalf("told %v at the start; the sources send their lists themselves", sent)
	}
	k.Send(messages.Node, messages.ServiceStarted{Service: messages.Pods})
	want := []supervisortest.SentMessage{{To: messages.File, Msg: messages.ResendDesired{}},
		{To: "sources/url", Msg: messages.ResendDesired{}}}
	got := k.Take()
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("told %v, want %v", got, want)
	}
}

func TestOtherServicesConcernNoSource(t *testing.T) {
	k := start(t, messages.File)
	k.Send(messages.Node, messages.ServiceStarted{Service: messages.Images})
	if sent := k.Take(); len(sent) != 0 {
		t.Fatalf("told %v about images", sent)
	}
	if len(k.Ignored) != 1 {
		t.Fatalf("ignored %v, want the one message", k.Ignored)
	}
}

func TestWhatChildrenDoNeedsNoAnswer(t *testing.T) {
	k := start(t, messages.File)
	for _, msg := range []any{
		messages.ChildStarted{Name: "file", Again: true}, messages.ChildStopped{Name: "file"},
		messages.ChildQuarantined{Name: "file", Reason: "it fell"},
	} {
		k.Send(messages.Sources, msg)
	}
	if len(k.Take()) != 0 || len(k.Spawned) != 0 || len(k.Ignored) != 0 {
		t.Fatalf("told %v, spawned %v, ignored %v", k.Outbox, k.Spawned, k.Ignored)
	}
}

func TestTheListIsItsOwn(t *testing.T) {
	list := []messages.Address{messages.File}
	constructor := New(Options{Sources: list})
	list[0] = "sources/other"
	k := supervisortest.New(t, messages.Sources, constructor("sources"))
	k.Send(messages.Node, messages.ServiceStarted{Service: messages.Pods})
	if got := k.Take(); len(got) != 1 || got[0].To != messages.File {
		t.Fatalf("told %v", got)
	}
}
