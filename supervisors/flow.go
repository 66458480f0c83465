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
	cause uint64 // id of the message that led to this one; 0 at the start of a flow
	flow  Flow
	from  messages.Address
	kind  EntryKind
	gen   uint64 // incarnation that a result or timer belongs to; 0 for anything else
	sent  time.Time
	began int64 // nanoseconds of its handling's start; set before others can see that it is handled
	msg   any
	// intercepted is true after the interceptor has delayed or doubled the message; it does not see it again.
	intercepted bool
	original    uint64     // of a double, the ID of the message that it is a double of
	reply       chan<- any // set on questions from outside the tree, and on the results of work that they asked for
}

// origin is the actor and the cause of work, carried in the work's context.
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

// RecordCall records a call in the flight recorder, with the work of ctx as its cause. Outside of work it does nothing.
func RecordCall(ctx context.Context, c Call) {
	o, ok := ctx.Value(originKey{}).(*origin)
	if !ok || o.sys == nil {
		return
	}
	o.sys.recorder.Add(Entry{ID: o.sys.seq.Add(1), Cause: o.cause, Flow: o.flow, Kind: OfCall, From: o.self, To: c.To,
		Message: c.Name, Digest: c.Digest, Sent: c.Asked, Began: c.Began, Took: c.Took})
}

// Awaited marks the end of a wait in work: the flight recorder counts the work's time from now. It may only be called on the
// goroutine of Run; outside of work it does nothing.
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

// next returns the flow of a message sent while handling one of flow f. It is f, unless the message is for or about another
// pod, whose own flow then begins, linked by its cause.
func (f Flow) next(id uint64, to messages.Address, msg any) Flow {
	return f.of(id, cmp.Or(messages.PodOf(msg), to.PodUID()))
}

// of returns the flow for this pod; f itself when pod is empty or the same.
func (f Flow) of(id uint64, pod string) Flow {
	if f.ID == 0 {
		f.ID = id
	}
	if pod != "" && f.Pod != pod {
		return Flow{ID: id, Pod: pod}
	}
	return f
}
