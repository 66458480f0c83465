package problemlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

// A problem is logged once, and again if it returns after an absence.
func TestAProblemIsReportedOnce(t *testing.T) {
	var l Log
	a, b := messages.ManifestProblem{Path: "a", Line: 1}, messages.ManifestProblem{Path: "b"}
	for i, c := range []struct {
		problems []messages.ManifestProblem
		sent     int
		news     bool
	}{
		{nil, 0, false},
		{[]messages.ManifestProblem{a}, 1, true},
		{[]messages.ManifestProblem{a}, 0, false},
		{[]messages.ManifestProblem{b, b, a}, 1, true},
		{[]messages.ManifestProblem{b}, 0, true},
		{nil, 0, true},
		{[]messages.ManifestProblem{a}, 1, true},
	} {
		var out bytes.Buffer
		news := l.Report(slog.New(slog.NewTextHandler(&out, nil)), "manifest problem", c.problems)
		if n := strings.Count(out.String(), "manifest problem"); n != c.sent || news != c.news ||
			l.Any() != (len(c.problems) > 0) {
			t.Errorf("%d: told %d, news %v\n%s", i, n, news, out.String())
		}
	}
}
