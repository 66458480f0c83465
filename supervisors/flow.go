package supervisors

import (
	"context"
	"log/slog"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Flow is the story that a message belongs to. It starts where something enters the tree from outside (a file changed,
// a timer of the node, a question) and is carried by every message, result and timer that follows from it.
type Flow struct {
	ID  uint64 `json:"id"`
	Pod string `json:"pod,omitempty"` // UID, when the story is one pod's
}

type envelope struct {
	id    uint64
	cause uint64 // id of the message whose handling sent this one; 0 at the start of a flow
	flow  Flow
	from  messages.Address
	gen   uint64 // incarnation that a result or timer belongs to; 0 for anything else
	sent  time.Time
	msg   any
	reply chan<- any // set on questions from outside the tree, and on the results of work that they asked for
}

type logKey struct{}

// LogOf is, in work, the logger of the actor that asked for it, which names the actor and the flow. Outside of work it is
// slog's default.
func LogOf(ctx context.Context) *slog.Logger {
	if log, ok := ctx.Value(logKey{}).(*slog.Logger); ok {
		return log
	}
	return slog.Default()
}

// next is the flow of a message sent while handling one of flow f: the same story, unless the message is about
// another pod, whose own story then begins, linked by its cause.
func (f Flow) next(id uint64, msg any) Flow {
	if f.ID == 0 {
		f.ID = id
	}
	if uid := messages.PodOf(msg); uid != "" && f.Pod != uid {
		return Flow{ID: id, Pod: uid}
	}
	return f
}
