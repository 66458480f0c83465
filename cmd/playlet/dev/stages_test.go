package dev

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A first signal asks, as the end of the context does, and both may be one; a second kills.
func TestSignalsArePassedOn(t *testing.T) {
	for what, c := range map[string]struct {
		signals int
		ends    bool
		want    string
	}{
		"Ctrl-C once":               {1, true, "ask"},
		"the context alone":         {0, true, "ask"},
		"a signal it does not know": {1, false, "ask"},
		"Ctrl-C twice":              {2, true, "kill"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		signals, stopped, calls := make(chan os.Signal), make(chan struct{}), make(chan string, 10)
		done := make(chan struct{})
		go func() {
			pass(ctx, signals, stopped, func() { calls <- "ask" }, func() { calls <- "kill" })
			close(done)
		}()
		for range c.signals {
			signals <- syscall.SIGINT
		}
		if c.ends {
			cancel()
		}
		last := <-calls
		for range c.signals - 1 {
			last = <-calls
		}
		if last != c.want {
			t.Errorf("%s: %s, want %s", what, last, c.want)
		}
		close(stopped)
		<-done
	}
}

func TestHowItEndedIsReported(t *testing.T) {
	f := folder(t.TempDir())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	killed := errors.New("signal: killed")
	for _, c := range []struct {
		what string
		ctx  context.Context
		once bool
		err  error
		want string
	}{
		{"killed", t.Context(), false, killed, "the node has ended: signal: killed"},
		{"silent", t.Context(), false, nil, "the node has ended without a word"},
		{"interrupted", ended, false, killed, ""},
		{"interrupted while it was waited for", ended, true, killed, errInterrupted.Error()},
	} {
		if got := text(outcome(c.ctx, f, c.once, c.err)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	must(t, writeOutcome(string(f), nil))
	must(t, outcome(ended, f, true, nil))
	must(t, writeOutcome(string(f), errors.New("too late"))) // the first word counts
	must(t, outcome(t.Context(), f, true, killed))
	must(t, os.Remove(f.at(outcomeFile)))
	must(t, writeOutcome(string(f), errors.New("broken")))
	if got := text(outcome(ended, f, false, nil)); got != "broken" {
		t.Errorf("%q", got)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWhatFailsAfterTheEndIsNoNews(t *testing.T) {
	broken := errors.New("broken")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, once := range []bool{false, true} {
		if err := unlessEnded(t.Context(), once, broken); !errors.Is(err, broken) {
			t.Error(err)
		}
		must(t, unlessEnded(t.Context(), once, nil))
	}
	must(t, unlessEnded(ended, false, broken))
	if err := unlessEnded(ended, true, nil); !errors.Is(err, errInterrupted) {
		t.Error(err)
	}
}

func TestStagesAreNotStartedByHand(t *testing.T) {
	if err := Init(t.TempDir()); !errors.Is(err, errByHand) {
		t.Error(err)
	}
	if os.Getppid() == 1 {
		t.Skip("node is not tried: process 1 has started this test")
	}
	if err := Node(t.Context(), t.TempDir(), Hooks{}); !errors.Is(err, errByHand) {
		t.Error(err)
	}
}

func TestHowNodeEnded(t *testing.T) {
	for status, want := range map[syscall.WaitStatus]string{0: "", 3 << 8: "exited with code 3", 9: "a signal: killed"} {
		if got := text(endOfNode(status)); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%d: %q", status, got)
		}
	}
}
