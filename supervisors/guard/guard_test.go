package guard

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func TestPanic_IsLoggedAndBecomesAnError(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	err := Call(log, "the watch", func() error { panicsHere(); return nil })
	if err == nil || err.Error() != "the watch: panic: broken" {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"level=ERROR", "the watch", "broken", "panicsHere"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the log: %s", want, out.String())
		}
	}
}

func panicsHere() { panic("broken") }

func TestAnErrorIsPassedOn(t *testing.T) {
	for _, want := range []error{nil, io.EOF} {
		if err := Call(slog.New(slog.DiscardHandler), "", func() error { return want }); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
