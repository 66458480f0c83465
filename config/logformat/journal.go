package logformat

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

// Journal reports whether w is the stream that systemd connected to its journal, by JOURNAL_STREAM (systemd.exec(5)).
func Journal(w io.Writer) bool {
	f, ok := w.(interface{ Stat() (os.FileInfo, error) })
	if !ok || os.Getenv("JOURNAL_STREAM") == "" {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// Prefixes of lines, by which the journal knows their priority (sd-daemon(3)). It drops them.
const (
	ErrorPrefix   = "<3>"
	warningPrefix = "<4>"
	infoPrefix    = "<6>"
	debugPrefix   = "<7>"
)

// journalHandler writes each record with the prefix of its priority. Index: as index returns it.
type journalHandler [4]slog.Handler

func newJournalHandler(w io.Writer, handler func(io.Writer) slog.Handler) journalHandler {
	var out journalHandler
	for i, prefix := range []string{ErrorPrefix, warningPrefix, infoPrefix, debugPrefix} {
		out[i] = handler(prefixWriter{w, prefix})
	}
	return out
}

func index(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 0
	case level >= slog.LevelWarn:
		return 1
	case level >= slog.LevelInfo:
		return 2
	default:
		return 3
	}
}

// Enabled implements slog.Handler.
func (h journalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h[0].Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	return h[index(r.Level)].Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range h {
		h[i] = h[i].WithAttrs(attrs)
	}
	return h
}

// WithGroup implements slog.Handler.
func (h journalHandler) WithGroup(name string) slog.Handler {
	for i := range h {
		h[i] = h[i].WithGroup(name)
	}
	return h
}

// prefixWriter puts a prefix before each record, which slog's handlers write in one call.
type prefixWriter struct {
	w      io.Writer
	prefix string
}

// Write implements io.Writer.
func (p prefixWriter) Write(line []byte) (int, error) {
	n, err := p.w.Write(append([]byte(p.prefix), line...))
	return max(n-len(p.prefix), 0), err
}
