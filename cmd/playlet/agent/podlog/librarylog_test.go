package podlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/config"
)

// The libraries log the bodies of the API server's answers at the verbosity 8, and Secrets are among them.
func TestLibraryLogs_FollowVerbosity(t *testing.T) {
	for _, c := range []struct {
		verbosity int
		want      string
	}{{3, ""}, {4, "at0 at4 "}, {7, "at0 at4 at7 "}, {10, "at0 at4 at7 "}} {
		var out bytes.Buffer
		log := slog.New(Library{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: config.V(c.verbosity)})})
		got := ""
		for _, at := range []struct {
			name  string
			level slog.Level
		}{{"at0", config.V(0)}, {"at4", config.V(4)}, {"at7", config.V(7)}, {"at8", config.V(8)}, {"at9", config.V(9)}} {
			log.Log(t.Context(), at.level, at.name)
			if strings.Contains(out.String(), at.name) {
				got += at.name + " "
			}
		}
		if got != c.want {
			t.Errorf("with --v=%d they say %q, not %q", c.verbosity, got, c.want)
		}
	}
}
