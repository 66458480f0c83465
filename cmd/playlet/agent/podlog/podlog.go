// Package podlog adds a pod's name and UID to log lines about it, and reduces the log output of libraries.
package podlog

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
)

// Names knows pods' names by UID, for the log: most actors know a pod by its UID alone. Safe for concurrent use.
type Names struct {
	mu    sync.RWMutex
	names map[string]string
	order []string // of arrival
}

// mostNames is how many are known at most; the oldest are forgotten.
const mostNames = 4096

// NewNames knows none yet.
func NewNames() *Names { return &Names{names: map[string]string{}} }

// Note takes a pod's name.
func (n *Names) Note(uid, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.names[uid]; !known {
		n.order = append(n.order, uid)
	}
	n.names[uid] = name
	if len(n.order) > mostNames {
		delete(n.names, n.order[0])
		n.order = n.order[1:]
	}
}

func (n *Names) of(uid string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.names[uid]
}

// The keys of a line that concerns a pod, which are the kubelet's.
const (
	podKey    = "pod"    // namespace/name
	podUIDKey = "podUID" // its UID
)

// ActorKey is the key of an actor's path in the tree.
const ActorKey = "actor"

// podHandler adds a pod's name and UID to each line about it. It finds the UID in the attribute "pod", or in the path of the
// actor of the pod or of a container.
type podHandler struct {
	slog.Handler
	names *Names
	uid   string // by the actor's path, or ""
	pod   string // the attribute "pod" of the logger, or ""
}

// WithNames is a log that has the names of pods.
func WithNames(log *slog.Logger, names *Names) *slog.Logger {
	return slog.New(&podHandler{Handler: log.Handler(), names: names})
}

// Handle implements slog.Handler.
func (h *podHandler) Handle(ctx context.Context, record slog.Record) error {
	pod, uid, hasUID := h.pod, h.uid, false
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case podKey:
			pod = a.Value.String()
		case podUIDKey:
			hasUID = true
		case ActorKey:
			uid = messages.Address(a.Value.String()).PodUID()
		}
		return true
	})
	if pod == "" && uid == "" {
		return h.Handler.Handle(ctx, record)
	}
	name := pod
	if !strings.Contains(pod, "/") {
		uid = cmp.Or(pod, uid)
		name = h.names.of(uid)
	}
	out := slog.NewRecord(record.Time, record.Level, record.Message, record.PC)
	if name != "" {
		out.AddAttrs(slog.String(podKey, name))
	}
	if uid != "" && !hasUID {
		out.AddAttrs(slog.String(podUIDKey, uid))
	}
	record.Attrs(func(a slog.Attr) bool {
		if a.Key != podKey {
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (h *podHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	rest := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		switch a.Key {
		case podKey:
			derived.pod = a.Value.String()
			continue
		case ActorKey:
			derived.uid = messages.Address(a.Value.String()).PodUID()
		}
		rest = append(rest, a)
	}
	derived.Handler = h.Handler.WithAttrs(rest)
	return &derived
}

// WithGroup implements slog.Handler.
func (h *podHandler) WithGroup(name string) slog.Handler {
	derived := *h
	derived.Handler = h.Handler.WithGroup(name)
	return &derived
}

// Library logs the messages of Kubernetes' libraries at debug level, since actors log the relevant ones themselves. It never
// enables verbosity 8 and above, which includes response bodies and with them Secrets.
type Library struct{ slog.Handler }

// Enabled implements slog.Handler.
func (l Library) Enabled(ctx context.Context, level slog.Level) bool {
	return level > config.V(8) && l.Handler.Enabled(ctx, min(level, slog.LevelDebug))
}

// Handle implements slog.Handler.
func (l Library) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l Library) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Library{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (l Library) WithGroup(name string) slog.Handler { return Library{l.Handler.WithGroup(name)} }
