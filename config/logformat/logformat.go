// Package logformat has the two formats of the log, and the verbosity of single source files.
package logformat

import (
	"context"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
)

// New returns a logger that writes to w from the threshold on. A step of verbosity is a level lower than slog.LevelInfo. To the
// journal each line goes with its priority, and as text without the time, which the journal has.
func New(w io.Writer, logging *logsapi.LoggingConfiguration, threshold *slog.LevelVar) *slog.Logger {
	journal := Journal(w)
	to := func(handler func(io.Writer) slog.Handler) slog.Handler {
		if journal {
			return newJournalHandler(w, handler)
		}
		return handler(w)
	}
	if logging.Format == logsapi.JSONLogFormat {
		return slog.New(to(func(w io.Writer) slog.Handler {
			return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: threshold, AddSource: true, ReplaceAttr: kubeletKeys})
		}))
	}
	lowest := slog.Level(math.MaxInt)
	files := make([]fileLevel, 0, len(logging.VModule))
	for _, item := range logging.VModule {
		level := slog.LevelInfo - slog.Level(item.Verbosity)
		files = append(files, fileLevel{item.FilePattern, level})
		lowest = min(lowest, level)
	}
	keys := namedLevels
	if journal {
		keys = untimed
	}
	text := to(func(w io.Writer) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: leastOf{threshold, lowest}, ReplaceAttr: keys})
	})
	if len(files) == 0 {
		return slog.New(text)
	}
	return slog.New(&fileHandler{Handler: text, threshold: threshold, files: files})
}

// leastOf is the lower of two levels; the first may change.
type leastOf struct {
	threshold *slog.LevelVar
	other     slog.Level
}

// Level implements slog.Leveler.
func (l leastOf) Level() slog.Level { return min(l.threshold.Level(), l.other) }

// kubeletKeys renames slog's keys to the kubelet's JSON keys.
func kubeletKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		if a.Value.Kind() == slog.KindTime {
			return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
		}
	case slog.SourceKey:
		if source, ok := a.Value.Any().(*slog.Source); ok && source != nil {
			return slog.String("caller",
				filepath.Base(filepath.Dir(source.File))+"/"+filepath.Base(source.File)+":"+strconv.Itoa(source.Line))
		}
	case slog.LevelKey:
		level, ok := a.Value.Any().(slog.Level)
		if !ok {
			return a
		}
		if level > slog.LevelInfo {
			return slog.String("severity", strings.ToLower(level.String()))
		}
		return slog.Int("v", int(slog.LevelInfo-level))
	}
	return a
}

// namedLevels shows the levels below info by their verbosity.
func namedLevels(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || a.Key != slog.LevelKey {
		return a
	}
	if level, ok := a.Value.Any().(slog.Level); ok && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, "V"+strconv.Itoa(int(slog.LevelInfo-level)))
	}
	return a
}

// untimed is namedLevels without the record's time.
func untimed(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return namedLevels(groups, a)
}

// fileLevel is one pattern of --vmodule: a glob for the base name of a source file without .go.
type fileLevel struct {
	pattern string
	level   slog.Level
}

// fileHandler lets records pass by the file they come from. The first pattern that matches decides, as in klog.
type fileHandler struct {
	slog.Handler
	threshold slog.Leveler
	files     []fileLevel
}

// Handle drops records below the level of their file.
func (h *fileHandler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level < h.levelOf(record.PC) {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs and WithGroup keep the file levels on derived loggers.
func (h *fileHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &fileHandler{h.Handler.WithAttrs(attrs), h.threshold, h.files}
}

// WithGroup opens a group on the wrapped handler.
func (h *fileHandler) WithGroup(name string) slog.Handler {
	return &fileHandler{h.Handler.WithGroup(name), h.threshold, h.files}
}

func (h *fileHandler) levelOf(pc uintptr) slog.Level {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	base := strings.TrimSuffix(filepath.Base(frame.File), ".go")
	for _, file := range h.files {
		if matched, err := filepath.Match(file.pattern, base); err == nil && matched {
			return file.level
		}
	}
	return h.threshold.Level()
}
