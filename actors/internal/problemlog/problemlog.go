// Package problemlog logs problems of manifests, each once.
package problemlog

import (
	"context"
	"log/slog"
	"maps"

	"github.com/playlet-dev/playlet/messages"
)

// Log remembers the logged problems. The zero value is empty. It belongs to one actor.
type Log struct {
	known map[messages.ManifestProblem]bool
}

// Report logs the problems that are new since the last call, under the given text. It returns whether the set has changed.
func (l *Log) Report(log *slog.Logger, text string, problems []messages.ManifestProblem) (news bool) {
	now := make(map[messages.ManifestProblem]bool, len(problems))
	for _, p := range problems {
		if !now[p] && !l.known[p] {
			level, message := slog.LevelError, text
			if p.Warning {
				level, message = slog.LevelWarn, "a field of a manifest is passed over"
			}
			log.Log(context.Background(), level, message, "path", p.Path, "line", p.Line, "manifestPod", p.Pod, "field", p.Field,
				"problem", p.Message,
				"keptLast", p.KeptLast)
		}
		now[p] = true
	}
	news = !maps.Equal(now, l.known)
	l.known = now
	return news
}

// Any reports whether the last call had a problem.
func (l *Log) Any() bool { return len(l.known) > 0 }
