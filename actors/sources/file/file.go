// Package file is the actor for the pods of the manifests in a file or folder.
//
// A worker waits for changes, reads the changed files, and returns one result. The actor sends the desired pods, and starts
// the worker again. A good manifest is applied as soon as its writer is done. A bad one is read again a moment later before
// it is reported. It never removes the last good version, which is also kept on disk. A file that is missing because its file
// system is no longer mounted, or another one is mounted over it, counts as unreadable.
package file

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configures the actor.
type Options struct {
	// Path is the manifest file or folder (staticPodPath).
	Path string
	// CheckFrequency is the time between two regular checks (fileCheckFrequency). It is 20 s if not positive, as in the
	// kubelet.
	CheckFrequency time.Duration
	// StateDir is a folder for this actor alone, e.g. <root-dir>/playlet/file-source. It is created if missing. If empty, the
	// last good versions of manifests do not survive the agent.
	StateDir string
	Node     base.Node
	// Board is where the pods actor publishes. It shows which departed pods have ended. nil: none is dropped.
	Board *board.Board
	// Clock is the tree's clock; nil: the real one.
	Clock clock.PassiveClock

	parse parser // nil: parses as the kubelet and the API server would
}

const defaultCheckFrequency = 20 * time.Second

// New returns the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = defaultCheckFrequency
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.parse == nil {
		opts.parse = manifestParser(opts.Node, opts.Clock)
	}
	if abs, err := filepath.Abs(opts.Path); err == nil { // it fails only without a working directory
		opts.Path = abs
	}
	memory := new(memory)
	return func(string) supervisors.Actor {
		return &source{opts: opts, memory: memory, checkpoint: base.NewCheckpoint(opts.StateDir, "the last good manifests")}
	}
}

// source is the actor.
type source struct {
	opts   Options
	memory *memory
	r      *reader

	desired    base.DesiredState
	checkpoint base.Checkpoint
	readAt     time.Time
	files      int

	again supervisors.Timer
	asked time.Time // when the pending check first became due; zero for none
}

type (
	checkDue struct{}
	lookDue  struct{}
)

func (s *source) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		s.start(ctx)
	case messages.ResendDesired:
		s.send(ctx)
	case readResult:
		s.onLooked(ctx, m)
	case lookDue:
		s.r.watch.Wake(true)
	case checkDue:
		s.onCheck(ctx)
	default:
		if !s.checkpoint.Receive(ctx, msg) {
			ctx.Unhandled(msg)
		}
	}
}

func (s *source) start(ctx supervisors.Context) {
	s.r = newReader(s.opts, s.memory)
	ctx.OnStop(s.r.watch.Close)
	s.read(ctx)
	ctx.After(s.opts.CheckFrequency, checkDue{})
}

// read starts the worker, which reads the next changes. Its result is lost only with the actor, as are its timers.
func (s *source) read(ctx supervisors.Context) {
	r := s.r
	ctx.Do(supervisors.Work{Name: "ReadManifests", Waits: true, Run: func(ctx context.Context) any { return r.next(ctx) }})
}

func (s *source) onLooked(ctx supervisors.Context, l readResult) {
	s.readAt, s.files = l.at, l.files
	for _, text := range l.notes {
		ctx.Log().Warn(text)
	}
	s.desired.Manifests = l.manifests
	s.desired.Problems, s.desired.Stale, s.desired.Gone = l.problems, l.stale, l.gone
	s.desired.Unread, s.desired.Names = l.unread, l.names
	if l.podsKnown {
		s.desired.Known, s.desired.Pods = true, l.pods
	}
	s.desired.Log(ctx, "manifest problem", "")
	if l.changed || l.checked {
		s.send(ctx)
	}
	if l.checked {
		s.asked = time.Time{}
	}
	if l.good != nil {
		s.checkpoint.Set(ctx, l.good)
	}
	if !l.wakeAt.IsZero() {
		if s.again != nil {
			s.again.Cancel()
		}
		s.again = ctx.After(max(0, l.wakeAt.Sub(ctx.Now())), lookDue{})
	}
	s.read(ctx)
}

// send sends the desired pods, if known, to the pods actor.
func (s *source) send(ctx supervisors.Context) {
	if s.desired.Known {
		s.desired.Send(ctx)
	}
}

// onCheck starts a complete reading. The previous check must be done by now. Otherwise the file system hangs, which is
// reported: the last reading is not fresh.
func (s *source) onCheck(ctx supervisors.Context) {
	ctx.After(s.opts.CheckFrequency, checkDue{})
	if s.asked.IsZero() {
		s.asked = ctx.Now()
	} else {
		s.reportHung(ctx)
	}
	s.r.watch.Wake(false)
	s.checkpoint.Retry(ctx)
}

func (s *source) reportHung(ctx supervisors.Context) {
	p := messages.ManifestProblem{Path: s.opts.Path, KeptLast: true,
		Message: "reading it does not end, since " + s.asked.UTC().Format(time.RFC3339) + ": the file system does not answer"}
	known := s.desired.Problems
	s.desired.Problems = append([]messages.ManifestProblem{p}, known...)
	s.desired.Log(ctx, "manifest problem", "")
	s.send(ctx)
	s.desired.Problems = known
}

// Inspection describes the actor's state.
type Inspection struct {
	Path string `json:"path"`
	base.Inspection
	Files  int       `json:"files"`
	ReadAt time.Time `json:"readAt"`
}

func (s *source) Inspect() any {
	return Inspection{Path: s.opts.Path, Inspection: s.desired.Inspect(), Files: s.files, ReadAt: s.readAt}
}
