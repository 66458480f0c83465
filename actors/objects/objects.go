// Package objects is the actor that holds the ConfigMaps and Secrets that something on this node needs. Without an API
// server they come from a folder of manifests.
//
// A worker waits for changes, reads what changed, and returns one result (reader.go); the actor publishes it for those who
// read, and tells volumes that there is something new. A file that breaks takes nothing away: what it held last stays in
// force while the agent lives. Nothing of it is kept on the disk, for Secrets are among it, and what they hold is never
// logged, told, or shown.
package objects

import (
	"context"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/problemlog"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Board is where the objects are published.
type Board = objectset.Board

// Options are what the actor needs.
type Options struct {
	// Dir is the folder of manifests (--object-dir), absolute.
	Dir string
	// Board is where the objects are published.
	Board *Board
	// CheckFrequency is the time between two regular checks; 20 s when it is not positive.
	CheckFrequency time.Duration
}

const (
	defaultCheckFrequency = 20 * time.Second
	// lifetime bounds what lasts as long as the actor does.
	lifetime = 100 * 365 * 24 * time.Hour
)

// New makes the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = defaultCheckFrequency
	}
	memory := newMemory() // outlives the actor: what broke meanwhile is still in force
	return func(string) supervisors.Actor {
		return &actor{opts: opts, memory: memory}
	}
}

type actor struct {
	opts   Options
	memory *memory
	watch  *watch

	asked time.Time // when the reading was asked for that is not done yet; zero for none
	hung  bool      // and that it does not end was told

	last   result
	logged problemlog.Log
	said   map[string]bool // warnings
}

type (
	checkDue struct{}
	lookDue  struct{}
	released struct{}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.watch = newWatch(a.opts.Dir)
		w := a.watch
		ctx.Do(supervisors.Work{Name: "HoldWatch", Timeout: lifetime, Run: func(ctx context.Context) any {
			<-ctx.Done()
			w.close()
			return released{}
		}})
		a.asked = ctx.Now()
		a.read(ctx, true)
		ctx.After(a.opts.CheckFrequency, checkDue{})
	case result:
		a.onRead(ctx, m)
	case checkDue:
		ctx.After(a.opts.CheckFrequency, checkDue{})
		a.onCheck(ctx)
	case lookDue:
		a.watch.wake()
	case released:
	default:
		ctx.Unhandled(msg)
	}
}

// read sends the worker to read, at once or when something changes.
func (a *actor) read(ctx supervisors.Context, now bool) {
	w, m := a.watch, a.memory
	ctx.Do(supervisors.Work{Name: "ReadObjects", Timeout: lifetime, Run: func(ctx context.Context) any {
		if !now {
			w.await(ctx)
		}
		return m.read(w)
	}})
}

func (a *actor) onRead(ctx supervisors.Context, r result) {
	for _, text := range r.warnings {
		if !a.said[text] {
			ctx.Log().Warn(text)
		}
	}
	a.said = map[string]bool{}
	for _, text := range r.warnings {
		a.said[text] = true
	}
	a.asked, a.hung = time.Time{}, false
	news := a.log(ctx, r.problems)
	if r.set != nil {
		version := a.opts.Board.Publish(r.set)
		news = news || version != a.last.version
		r.version = version
	} else {
		r.version = a.last.version
	}
	a.last = r
	if news {
		a.tell(ctx)
	}
	if r.again > 0 {
		ctx.After(r.again, lookDue{})
	}
	a.read(ctx, false)
}

// onCheck has everything looked at again. What was asked for at the check before must be done by now; if it is not, the file
// system does not answer, which is told so that nobody takes what is known for fresh.
func (a *actor) onCheck(ctx supervisors.Context) {
	switch {
	case a.asked.IsZero():
		a.asked = ctx.Now()
	case !a.hung:
		a.hung = true
		a.log(ctx, a.problems())
	}
	a.tell(ctx)
	a.watch.wake()
}

// log tells what is new, and says whether anything is.
func (a *actor) log(ctx supervisors.Context, problems []messages.ManifestProblem) (news bool) {
	return a.logged.Tell(ctx.Log(), "object manifest problem", problems)
}

func (a *actor) doesNotEnd() messages.ManifestProblem {
	return messages.ManifestProblem{Path: a.opts.Dir, KeptLast: true,
		Message: "reading it does not end, since " + a.asked.UTC().Format(time.RFC3339) + ": the file system does not answer"}
}

func (a *actor) problems() []messages.ManifestProblem {
	if !a.hung {
		return a.last.problems
	}
	return append([]messages.ManifestProblem{a.doesNotEnd()}, a.last.problems...)
}

func (a *actor) tell(ctx supervisors.Context) {
	if a.last.version > 0 {
		ctx.Tell(messages.Volumes, messages.ObjectsChanged{Version: a.last.version})
		ctx.Tell(messages.Images, messages.ObjectsChanged{Version: a.last.version})
	}
	ctx.Tell(messages.Pods, messages.ObjectProblems{Problems: a.problems()})
}

// Inspection is what the actor says of itself: names, never contents.
type Inspection struct {
	Dir        string                     `json:"dir"`
	Version    uint64                     `json:"version"`
	ConfigMaps []string                   `json:"configMaps"`
	Secrets    int                        `json:"secrets"`
	Problems   []messages.ManifestProblem `json:"problems,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	in := Inspection{Dir: a.opts.Dir, Version: a.last.version, ConfigMaps: []string{}, Problems: slices.Clone(a.problems())}
	if a.last.set != nil {
		in.Secrets = len(a.last.set.Secrets)
		for k := range a.last.set.ConfigMaps {
			in.ConfigMaps = append(in.ConfigMaps, k.Namespace+"/"+k.Name)
		}
		slices.Sort(in.ConfigMaps)
	}
	return in
}
