package server

import (
	"strings"
	"testing"
)

func TestDeadLoop_IsReportedAndRestarted(t *testing.T) {
	r := openRig(t)
	e := r.listeners.ends[0]
	died, _ := e.current()
	if err := died.listener.Close(); err != nil {
		t.Fatal(err)
	}
	<-died.ended
	if s := r.listeners.State()[0]; s.Open || !strings.Contains(s.Error, "admin: it stopped listening") {
		t.Errorf("%+v", s)
	}
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Version(t.Context()); err != nil {
		t.Error(err)
	}
	if s := r.listeners.State()[0]; !s.Open || s.Error != "" || s.Since.IsZero() || s.Where != r.socket {
		t.Errorf("%+v", s)
	}
	now, _ := e.current()
	if err := r.listeners.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, _ := e.current(); again != now {
		t.Error("what was open was opened anew")
	}
}
