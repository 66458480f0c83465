package stoporder

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// text writes containers as letters: m is a main container, s a sidecar, S one that is being stopped.
func containers(text string) (out []Container) {
	for _, c := range text {
		out = append(out, Container{Sidecar: c != 'm', Begun: c == 'S'})
	}
	return out
}

func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		containers string
		rest       time.Duration // of 30 s
		others     bool
		want       string
	}{
		"sidecars wait for main containers":             {"ssmm", 30, false, "stop 2 30s, stop 3 30s, hook 1 30s, hook 0 30s"},
		"the last sidecar is first":                     {"ss", 20, false, "stop 1 20s, hook 0 20s"},
		"the next sidecar waits for the one before":     {"sS", 20, false, "stop 1 20s, hook 0 20s"},
		"an unknown main container":                     {"ss", 20, true, "hook 1 20s, hook 0 20s"},
		"after the grace period sidecars do not wait":   {"ss", 0, false, "stop 1 2s, stop 0 2s"},
		"but for main containers, whenever they end":    {"ssm", -5, false, "stop 2 30s"},
		"and for those that are not known":              {"ss", -5, true, ""},
		"a sidecar has two seconds":                     {"s", 1, false, "stop 0 2s"},
		"a sidecar that is being stopped goes on so":    {"Ss", 20, false, "stop 1 20s, stop 0 20s"},
		"also beside main containers that run for long": {"Sm", -5, false, "stop 1 30s, stop 0 2s"},
		"nothing is left":                               {"", 20, false, ""},
	} {
		var got []string
		for _, s := range Next(containers(c.containers), 30*time.Second, c.rest*time.Second, c.others) {
			what := "stop"
			if s.HookOnly {
				what = "hook"
			}
			got = append(got, fmt.Sprintf("%s %d %s", what, s.Index, s.Grace))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: got %q, want %q", name, text, c.want)
		}
	}
}
