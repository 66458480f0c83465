package agent

import (
	"context"
	"log/slog"

	"github.com/playlet-dev/playlet/config"
)

// libraryLog has what Kubernetes' libraries say as details: what matters of it, actors say themselves, once. What they say at
// the verbosity 8 and beyond is never asked for: it has the bodies of answers, and with them Secrets.
type libraryLog struct{ slog.Handler }

// Enabled implements slog.Handler.
func (l libraryLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level > config.V(8) && l.Handler.Enabled(ctx, min(level, slog.LevelDebug))
}

// Handle implements slog.Handler.
func (l libraryLog) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (l libraryLog) WithGroup(name string) slog.Handler { return libraryLog{l.Handler.WithGroup(name)} }
