// Package file is the actor that wants the pods of the manifests in a file or folder.
//
// A worker waits for changes, reads what changed, and returns one result; the actor tells pods what is wanted, and sends the
// worker back. What is good is wanted the moment its writer is done. What is bad is first looked at with some patience,
// then reported, and never takes away what was good before: that is kept on disk too.
package file

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/problemlog"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	// Path is the manifest file or folder (staticPodPath).
	Path string
	// CheckFrequency is the time between two regular checks (fileCheckFrequency); 20 s when it is not positive, as the
	// kubelet has it.
	CheckFrequency time.Duration
	// StateDir is a folder for this actor alone, e.g. <root-dir>/playlet/file-source; it is made where it is missing.
	// When empty, the last good versions of manifests do not survive the agent.
	StateDir string
	NodeName string
	// Objects says that the node has ConfigMaps, Secrets and RuntimeClasses of its own, so that pods may refer to them.
	Objects bool
	// Cluster says that it has an API server, to whose RuntimeClasses they may refer.
	Cluster bool
	// Parse reads a manifest; nil: as the kubelet and the API server would.
	Parse Parse
	// Clock is the tree's clock; nil: the real one.
	Clock clock.PassiveClock
}

const (
	defaultCheckFrequency = 20 * time.Second
	// saveDelay gathers the changes of a burst into one checkpoint, written when the burst has been told.
	saveDelay   = 200 * time.Millisecond
	saveTimeout = 30 * time.Second
	// lifetime bounds what lasts as long as the actor does: holding the watch, and waiting for changes.
	lifetime = 100 * 365 * 24 * time.Hour
)

// New makes the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = defaultCheckFrequency
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Parse == nil {
		opts.Parse = manifestParser(opts.NodeName, manifest.Has{Objects: opts.Objects, Cluster: opts.Cluster}, opts.Clock)
	}
	if abs, err := filepath.Abs(opts.Path); err == nil { // it fails only where there is no working folder
		opts.Path = abs
	}
	memory := new(memory)
	return func(string) supervisors.Actor {
		return &source{opts: opts, memory: memory}
	}
}

// source is the actor.
type source struct {
	opts   Options
	memory *memory
	r      *reader

	wish     *messages.SourcePodsWanted // nil until it is known what is wanted
	problems []messages.ManifestProblem // also while there is no wish
	logged   problemlog.Log
	readAt   time.Time
	files    int

	again supervisors.Timer
	asked time.Time // when the check that is not done yet was due first; zero for none

	unsaved *lastGood // nil when all is saved
	saving  bool
}

type (
	checkDue struct{}
	lookDue  struct{}
	saveDue  struct{}
	saved    struct {
		good *lastGood
		err  error
	}
	released struct{}
)

// Receive implements supervisors.Actor.
func (s *source) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		s.start(ctx)
	case messages.TellWish:
		s.tell(ctx)
	case looked:
		s.onLooked(ctx, m)
	case lookDue:
		s.r.watch.wake(true)
	case checkDue:
		s.onCheck(ctx)
	case saveDue:
		s.save(ctx)
	case saved:
		s.onSaved(ctx, m)
	default:
		ctx.Unhandled(msg)
	}
}

func (s *source) start(ctx supervisors.Context) {
	s.r = newReader(s.opts, s.memory)
	hold := s.r.watch
	ctx.Do(supervisors.Work{Name: "HoldWatch", Timeout: lifetime, Run: func(ctx context.Context) any {
		// Whatever ends the actor ends this, and so the watch never outlives it.
		<-ctx.Done()
		hold.close()
		return released{}
	}})
	s.read(ctx)
	ctx.After(s.opts.CheckFrequency, checkDue{})
}

// read sends the worker to read what changes next. Its result is lost only with the actor, as its timers are.
func (s *source) read(ctx supervisors.Context) {
	r := s.r
	ctx.Do(supervisors.Work{Name: "ReadManifests", Timeout: lifetime, Run: func(ctx context.Context) any { return r.next(ctx) }})
}

func (s *source) onLooked(ctx supervisors.Context, l looked) {
	s.readAt, s.files, s.problems = l.at, l.files, l.problems
	for _, text := range l.notes {
		ctx.Log().Warn(text)
	}
	s.logged.Tell(ctx.Log(), "manifest problem", l.problems)
	if l.heard && (l.changed || s.wish == nil) {
		s.wish = &messages.SourcePodsWanted{Source: ctx.Self(), Pods: l.pods, Problems: l.problems}
	}
	if l.changed || l.checked {
		s.tell(ctx)
	}
	if l.checked {
		s.asked = time.Time{}
	}
	if l.good != nil {
		s.unsaved = l.good
		if !s.saving {
			ctx.After(saveDelay, saveDue{})
		}
	}
	if !l.again.IsZero() {
		if s.again != nil {
			s.again.Cancel()
		}
		s.again = ctx.After(max(0, l.again.Sub(ctx.Now())), lookDue{})
	}
	s.read(ctx)
}

// tell tells pods what is wanted, if that is known.
func (s *source) tell(ctx supervisors.Context) {
	if s.wish != nil {
		ctx.Tell(messages.Pods, *s.wish)
	}
}

// onCheck has everything read again. The check before must be done by now: if it is not, the file system does not answer,
// which is told so that nobody takes the last wish for a fresh one.
func (s *source) onCheck(ctx supervisors.Context) {
	ctx.After(s.opts.CheckFrequency, checkDue{})
	if s.asked.IsZero() {
		s.asked = ctx.Now()
	} else {
		s.tellHung(ctx)
	}
	s.r.watch.wake(false)
	s.save(ctx)
}

func (s *source) tellHung(ctx supervisors.Context) {
	p := messages.ManifestProblem{Path: s.opts.Path, KeptLast: true,
		Message: "reading it does not end, since " + s.asked.UTC().Format(time.RFC3339) + ": the file system does not answer"}
	problems := append([]messages.ManifestProblem{p}, s.problems...)
	s.logged.Tell(ctx.Log(), "manifest problem", problems)
	if s.wish != nil {
		wish := *s.wish
		wish.Problems = problems
		ctx.Tell(messages.Pods, wish)
	}
}

// save keeps on disk what is in force, unless that is being done.
func (s *source) save(ctx supervisors.Context) {
	if s.unsaved == nil || s.saving {
		return
	}
	good, dir := s.unsaved, s.opts.StateDir
	s.unsaved, s.saving = nil, true
	ctx.Do(supervisors.Work{Name: "SaveLastGood", Timeout: saveTimeout, Run: func(context.Context) any {
		err := save(dir, good)
		return saved{good, err}
	}})
}

func (s *source) onSaved(ctx supervisors.Context, m saved) {
	s.saving = false
	if m.err != nil {
		ctx.Log().Error("the last good manifests cannot be kept on disk; they are lost if the agent stops now", "reason", m.err)
		if s.unsaved == nil {
			s.unsaved = m.good // the next check tries again
		}
		return
	}
	if s.unsaved != nil {
		ctx.After(saveDelay, saveDue{})
	}
}

// Inspection is what the actor says of itself.
type Inspection struct {
	Path     string                     `json:"path"`
	Heard    bool                       `json:"heard"` // whether it is known what is wanted
	Files    int                        `json:"files"`
	Pods     []string                   `json:"pods"`
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
	ReadAt   time.Time                  `json:"readAt"`
}

// Inspect implements supervisors.Inspectable.
func (s *source) Inspect() any {
	in := Inspection{
		Path: s.opts.Path, Heard: s.wish != nil, Files: s.files, Problems: slices.Clone(s.problems), ReadAt: s.readAt,
		Pods: []string{},
	}
	if s.wish != nil {
		for _, p := range s.wish.Pods {
			in.Pods = append(in.Pods, p.Namespace+"/"+p.Name)
		}
	}
	return in
}
