// Package problemlog tells the log what is wrong with manifests, once.
package problemlog

import (
	"context"
	"log/slog"
	"maps"

	"github.com/playlet-dev/playlet/messages"
)

// Log knows what it has told. The zero value has told nothing. It belongs to one actor.
type Log struct {
	known map[messages.ManifestProblem]bool
}

// Tell logs the problems that were not among those of the call before, as what, and says whether they are others than then.
func (l *Log) Tell(log *slog.Logger, what string, problems []messages.ManifestProblem) (news bool) {
	now := make(map[messages.ManifestProblem]bool, len(problems))
	for _, p := range problems {
		if !now[p] && !l.known[p] {
			level, text := slog.LevelError, what
			if p.Warning {
				level, text = slog.LevelWarn, "a field of a manifest is passed over"
			}
			log.Log(context.Background(), level, text, "path", p.Path, "line", p.Line, "manifestPod", p.Pod, "field", p.Field,
				"problem", p.Message,
				"keptLast", p.KeptLast)
		}
		now[p] = true
	}
	news = !maps.Equal(now, l.known)
	l.known = now
	return news
}

// Any says whether there was a problem at the call before.
func (l *Log) Any() bool { return len(l.known) > 0 }
