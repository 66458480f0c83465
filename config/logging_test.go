package config

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logAll writes one record of every kind and returns the output.
func logAll(t *testing.T, args ...string) string {
	t.Helper()
	n, _, err := loadArgs(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	logger := n.Logger(&out)
	ctx := context.Background()
	logger.ErrorContext(ctx, "an-error")
	logger.WarnContext(ctx, "a-warning")
	logger.InfoContext(ctx, "an-info")
	logger.Log(ctx, V(2), "at-two")
	logger.With("pod", "p").WithGroup("g").Log(ctx, V(5), "at-five", "k", "v")
	return out.String()
}

func TestVerbosity(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "an-error a-warning an-info"},
		{[]string{"--v=2"}, "an-error a-warning an-info at-two"},
		{[]string{"-v=4"}, "an-error a-warning an-info at-two"},
		{[]string{"--v=5", "--logging-format=json"}, "an-error a-warning an-info at-two at-five"},
		{[]string{"--vmodule=logging_test=3"}, "an-error a-warning an-info at-two"},
		{[]string{"--vmodule=other=9"}, "an-error a-warning an-info"},
		{[]string{"--v=5", "--vmodule=other=9,logging*=2"}, "an-error a-warning an-info at-two"},
	} {
		got := logAll(t, test.args...)
		for _, message := range []string{"an-error", "a-warning", "an-info", "at-two", "at-five"} {
			if has, want := strings.Contains(got, message), strings.Contains(test.want, message); has != want {
				t.Errorf("%v: %s arrived: %t, want %t", test.args, message, has, want)
			}
		}
	}
}

func TestTextLog(t *testing.T) {
	got := logAll(t, "--v=5", "--vmodule=nothing=1")
	for _, want := range []string{"level=ERROR msg=an-error", "level=INFO msg=an-info", "level=V2 msg=at-two",
		"level=V5 msg=at-five pod=p g.k=v"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestJSONLogHasTheKubeletsKeys(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(logAll(t, "--v=5", "--logging-format=json")), "\n")
	wants := []string{`"severity":"error"`, `"severity":"warn"`, `"v":0`, `"v":2`, `"v":5`}
	if len(lines) != len(wants) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if ts, ok := record["ts"].(float64); !ok || ts < 1e12 {
			t.Errorf("ts %v is not in milliseconds", record["ts"])
		}
		if caller, ok := record["caller"].(string); !ok || !strings.HasPrefix(caller, "config/logging_test.go:") {
			t.Errorf("caller %v", record["caller"])
		}
		if !strings.Contains(line, wants[i]) {
			t.Errorf("no %s in %s", wants[i], line)
		}
	}
	if !strings.Contains(lines[4], `"pod":"p","g":{"k":"v"}`) {
		t.Errorf("attributes: %s", lines[4])
	}
}

func TestAttributesKeepTheirNames(t *testing.T) {
	n, _, err := loadArgs(t, "--logging-format=json")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n.Logger(&out).Info("m", "level", "own", "source", "own", "time", "own", slog.Group("g", "time", "own"))
	if got := out.String(); strings.Count(got, `"own"`) != 4 {
		t.Errorf("an attribute was lost: %s", got)
	}
}

// Under systemd a line has its priority, by which journalctl -p finds it, and no time, which the journal has.
func TestLogger_Journal(t *testing.T) {
	for format, want := range map[string][]string{
		"text": {"<3>level=ERROR msg=an-error pod=p g.time=", "<4>level=WARN msg=a-warning pod=p g.time=",
			"<6>level=INFO msg=an-info pod=p g.time=", "<7>level=V2 msg=at-two pod=p g.time="},
		"json": {`<3>{"ts":`, `<4>{"ts":`, `<6>{"ts":`, `<7>{"ts":`},
	} {
		n, _, err := loadArgs(t, "--v=2", "--logging-format="+format)
		if err != nil {
			t.Fatal(err)
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		info, err := write.Stat()
		if err != nil {
			t.Fatal(err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("no stat of a pipe")
		}
		t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stat.Dev, stat.Ino))
		logger := n.Logger(write).With("pod", "p").WithGroup("g")
		at := slog.Time("time", time.Unix(0, 0))
		for _, line := range []struct {
			level slog.Level
			text  string
		}{{slog.LevelError, "an-error"}, {slog.LevelWarn, "a-warning"}, {slog.LevelInfo, "an-info"}, {V(2), "at-two"}} {
			logger.LogAttrs(t.Context(), line.level, line.text, at)
		}
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(read)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(got)), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%s: %d lines, want %d:\n%s", format, len(lines), len(want), got)
		}
		for i := range want {
			if !strings.HasPrefix(lines[i], want[i]) {
				t.Errorf("%s: got line %q, want it to begin with %q", format, lines[i], want[i])
			}
		}
	}
	var other bytes.Buffer // processes with another stderr inherit JOURNAL_STREAM, too
	n, _, err := loadArgs(t)
	if err != nil {
		t.Fatal(err)
	}
	if n.Logger(&other).Warn("m"); !strings.HasPrefix(other.String(), "time=") {
		t.Errorf("to another stream: %q", other.String())
	}
}
