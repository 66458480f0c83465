package progress

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSteps_AreLinesWithoutTerminal(t *testing.T) {
	var out strings.Builder
	p := New(&out)
	p.Line("%d words", 2)
	must(t, p.Step("first", func(waiting func(string)) (string, error) {
		waiting("a moment")
		return "done", nil
	}))
	broken := errors.New("broken")
	if err := p.Step("second", func(func(string)) (string, error) { return "unsaid", broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	must(t, p.Step("third", func(func(string)) (string, error) { return "", nil }))
	got := regexp.MustCompile(` +[0-9]+\.[0-9] s`).ReplaceAllString(out.String(), "T")
	if want := "2 words\nT  first: done\nT  second: failed\nT  third\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOnATerminalTheStepUnderWayShows(t *testing.T) {
	var out strings.Builder
	p := New(&out)
	p.live, p.width = true, func() int { return 24 }
	must(t, p.Step("step", func(waiting func(string)) (string, error) {
		waiting("ä€ö tht is far too long")
		p.Line("a line")
		waiting("b")
		return "", nil
	}))
	want := strings.Join([]string{"", "      ...  step", "      ...  step: ä€ö th", "a line\n      ...  step: ä€ö th",
		"      ...  step: b", ""}, wipe)
	if got := out.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " s  step\n") {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAReaderThatHasGoneIsNoticed(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	p := New(w)
	if p.live {
		t.Error("a pipe is taken for a terminal")
	}
	unread := 0
	p.Unread = func() { unread++ }
	p.Line("read")
	if unread > 0 {
		t.Error("a reader that is there is missed")
	}
	must(t, r.Close())
	p.Line("unread")
	if unread != 1 {
		t.Errorf("a reader that has gone is missed %d times", unread)
	}
	must(t, w.Close())
	p = New(failingWriter{syscall.ENOSPC})
	p.Unread = func() { t.Error("a full disk is no reason") }
	p.Line("unread")
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
