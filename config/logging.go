package config

import (
	"io"
	"log/slog"

	"github.com/playlet-dev/playlet/config/logformat"
)

// V turns a verbosity as --v counts it into a level for slog: 0 is slog.LevelInfo, and each step further is one level
// lower, as logr maps them. Log something for the curious with logger.Log(ctx, config.V(4), …).
func V(verbosity int) slog.Level { return slog.LevelInfo - slog.Level(verbosity) }

// Logger returns a logger that writes to w in the format of --logging-format. Errors and warnings always appear; other
// records appear up to the verbosity of --v, and in the text format up to the one that --vmodule gives their source file.
//
// The JSON format has the kubelet's keys: "ts" (milliseconds since 1970), "caller", "msg", and "v" for a record's
// verbosity or "severity" for warnings and errors. The logger may be used from many goroutines at once.
func (n *Node) Logger(w io.Writer) *slog.Logger {
	n.logLevel.Set(V(n.Verbosity()))
	return logformat.New(w, &n.Kubelet.Logging, &n.logLevel)
}

// SetVerbosity changes the verbosity of the loggers that Logger has made. Safe for concurrent use.
func (n *Node) SetVerbosity(v int) { n.logLevel.Set(V(v)) }
