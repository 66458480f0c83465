package supervisors

import (
	"cmp"
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
	kind  EntryKind
	gen   uint64 // incarnation that a result or timer belongs to; 0 for anything else
	sent  time.Time
	began int64 // nanoseconds of its handling's start; set before others can see that it is handled
	msg   any
	// intercepted says that the interceptor has delayed or doubled it, and does not see it again.
	intercepted bool
	original    uint64     // of a double, the ID of the message that it is a double of
	reply       chan<- any // set on questions from outside the tree, and on the results of work that they asked for
}

// origin is, in the context of work, who does it and why.
type origin struct {
	sys   *System // nil where its calls are not recorded
	log   *slog.Logger
	self  messages.Address
	flow  Flow
	cause uint64
	now   func() time.Time
	began time.Time // see Awaited; zero: when Run began
}

type originKey struct{}

// Call is one request that work makes to something outside the tree.
type Call struct {
	To           messages.Address // the actor that stands for whom it is made to
	Name, Digest string
	Asked, Began time.Time // Asked is when it began to wait for its turn
	Took         time.Duration
}

// RecordCall notes a call in the flight recorder, as caused by the work whose context this is; with any other it does nothing.
func RecordCall(ctx context.Context, c Call) {
	o, ok := ctx.Value(originKey{}).(*origin)
	if !ok || o.sys == nil {
		return
	}
	o.sys.recorder.Add(Entry{ID: o.sys.seq.Add(1), Cause: o.cause, Flow: o.flow, Kind: OfCall, From: o.self, To: c.To,
		Message: c.Name, Digest: c.Digest, Sent: c.Asked, Began: c.Began, Took: c.Took})
}

// Awaited says, in work, that what it waited for has come: the flight recorder counts it from now, and not from when it began to
// wait. It is for the goroutine of Run alone; elsewhere it does nothing.
func Awaited(ctx context.Context) {
	if o, ok := ctx.Value(originKey{}).(*origin); ok {
		o.began = o.now()
	}
}

// LogOf is, in work, the logger of the actor that asked for it, which names the actor and the flow. Outside of work it is
// slog's default.
func LogOf(ctx context.Context) *slog.Logger {
	if o, ok := ctx.Value(originKey{}).(*origin); ok {
		return o.log
	}
	return slog.Default()
}

// next is the flow of a message sent while handling one of flow f: the same story, unless the message is about
// another pod, or to its actor, whose own story then begins, linked by its cause.
func (f Flow) next(id uint64, to messages.Address, msg any) Flow {
	return f.of(id, cmp.Or(messages.PodOf(msg), to.PodUID()))
}

// of is the flow of what is for this pod, where there is one.
func (f Flow) of(id uint64, pod string) Flow {
	if f.ID == 0 {
		f.ID = id
	}
	if pod != "" && f.Pod != pod {
		return Flow{ID: id, Pod: pod}
	}
	return f
}
