// Package objects is the actor that holds the ConfigMaps, Secrets, Services and RuntimeClasses that something on this node needs.
// Those of static pods come from a folder of manifests, those of the API server's pods from there (cluster.go); either may be
// missing.
//
// A worker waits for changes of the folder, reads what changed, and returns one result (reader.go); the actor publishes it for
// those who read, and tells volumes and images that there is something new. Of the API server's objects those are read and
// followed (follow.go) that pods here name, and published as they come. A file that breaks, and a server that is away, takes
// nothing away: what was read last stays in force while the agent lives. Nothing of it is kept on the disk, for Secrets are
// among it, and what they hold is never logged, sent, or shown.
//
// All Services with an address are followed, since environments list them. Of ConfigMaps and Secrets exactly those are
// followed that pods here name: a read of each, then a reflector of that one object, as a node may see no others; an
// immutable one is not followed. After a restored backup a reflector brings nothing until its resource version is reached
// again: the agent is to be restarted then, as a kubelet is. Objects of the folder and of the API server are kept apart:
// each pod reads those of its own kind. Until an object was read, mounts, pulls and starts wait for it with a reason.
// RuntimeClasses name the handler of a new sandbox; an existing sandbox keeps its handler. Static pods see those of the
// folder and, in a cluster, those of the API server.
package objects

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/problemlog"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Board is where the objects are published.
type Board = objectset.Board

// NewBoard is the board of a node with or without a folder of objects.
func NewBoard(folder bool) *Board { return objectset.NewBoard(folder) }

// Options are what the actor needs.
type Options struct {
	// Dir is the folder of manifests (--object-dir), absolute; empty: there is none.
	Dir string
	// Client is the API server's; nil: there is none.
	Client kubernetes.Interface
	// NodeName is this node's.
	NodeName string
	// Poll is how often objects of the API server are read; 0: they are watched.
	Poll time.Duration
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
	memory := newMemory(opts.Dir) // outlives the actor: what broke meanwhile is still in force
	return func(string) supervisors.Actor {
		return &actor{opts: opts, memory: memory}
	}
}

type actor struct {
	opts    Options
	memory  *memory
	watch   *dirwatch.Watch // nil without a folder
	cluster *cluster        // nil without an API server

	asked time.Time // when the reading was asked for that is not done yet; zero for none
	hung  bool      // and it was reported that this does not end

	last   result
	logged problemlog.Log
	said   map[string]bool // warnings
}

type (
	checkDue struct{}
	lookDue  struct{}
	released struct{}
	news     struct{} // of the API server
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.beginFolder(ctx)
		a.beginCluster(ctx)
		ctx.After(a.opts.CheckFrequency, checkDue{})
	case messages.ObjectsWanted:
		if a.cluster != nil {
			a.cluster.want(m.Pods)
		}
	case news:
		a.tell(ctx)
		a.awaitNews(ctx)
	case result:
		a.onRead(ctx, m)
	case checkDue:
		ctx.After(a.opts.CheckFrequency, checkDue{})
		a.onCheck(ctx)
	case lookDue:
		a.watch.Wake(false)
	case released:
	default:
		ctx.Unhandled(msg)
	}
}

func (a *actor) beginFolder(ctx supervisors.Context) {
	if a.opts.Dir == "" {
		return
	}
	w := dirwatch.New()
	a.watch = w
	hold(ctx, "HoldWatch", w.Close)
	a.asked = ctx.Now()
	a.read(ctx, true)
}

// hold calls end when the actor ends, whatever ends it.
func hold(ctx supervisors.Context, name string, end func()) {
	ctx.Do(supervisors.Work{Name: name, Timeout: lifetime, Run: func(ctx context.Context) any {
		<-ctx.Done()
		end()
		return released{}
	}})
}

// beginCluster follows nothing yet: what pods name they tell when they hear that this actor has started.
func (a *actor) beginCluster(ctx supervisors.Context) {
	if a.opts.Client == nil {
		return
	}
	a.cluster = newCluster(a.opts)
	c := a.cluster
	c.followServices()
	c.followRuntimeClasses()
	hold(ctx, "FollowObjects", c.stop)
	a.awaitNews(ctx)
}

func (a *actor) awaitNews(ctx supervisors.Context) {
	c := a.cluster
	ctx.Do(supervisors.Work{Name: "AwaitObjects", Timeout: lifetime, Run: func(ctx context.Context) any {
		c.await(ctx)
		supervisors.Awaited(ctx)
		return news{}
	}})
}

// read sends the worker to read, at once or when something changes.
func (a *actor) read(ctx supervisors.Context, now bool) {
	w, m := a.watch, a.memory
	ctx.Do(supervisors.Work{Name: "ReadObjects", Timeout: lifetime, Run: func(ctx context.Context) any {
		if !now {
			w.Await(ctx)
			supervisors.Awaited(ctx)
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
	a.last.problems = r.problems
	fresh := a.log(ctx)
	if r.set != nil {
		before := a.opts.Board.Version()
		fresh = a.opts.Board.Publish(r.set) != before || fresh
	}
	a.last = r
	if fresh {
		a.tell(ctx)
	}
	if r.again > 0 {
		ctx.After(r.again, lookDue{})
	}
	a.read(ctx, false)
}

// onCheck has everything looked at again. What was asked for at the check before must be done by now; if it is not, the file
// system does not answer, which is reported so that nobody takes the last state for fresh.
func (a *actor) onCheck(ctx supervisors.Context) {
	if a.watch != nil {
		if a.asked.IsZero() {
			a.asked = ctx.Now()
		} else {
			a.hung = true
		}
		defer a.watch.Wake(false)
	}
	a.log(ctx)
	a.tell(ctx)
}

// log tells what is new, and says whether anything is.
func (a *actor) log(ctx supervisors.Context) (news bool) {
	return a.logged.Report(ctx.Log(), "object problem", a.problems())
}

func (a *actor) problems() []messages.ManifestProblem {
	out := slices.Clone(a.last.problems)
	if a.hung {
		text := "reading it does not end, since " + a.asked.UTC().Format(time.RFC3339) + ": the file system does not answer"
		out = append([]messages.ManifestProblem{{Path: a.opts.Dir, KeptLast: true, Message: text}}, out...)
	}
	if a.cluster != nil {
		out = append(out, a.cluster.problems()...)
	}
	return out
}

func (a *actor) tell(ctx supervisors.Context) {
	if version := a.opts.Board.Version(); version > 0 {
		ctx.Tell(messages.Volumes, messages.ObjectsChanged{Version: version})
		ctx.Tell(messages.Images, messages.ObjectsChanged{Version: version})
	}
	ctx.Tell(messages.Pods, messages.ObjectProblems{Problems: a.problems()})
}

// Inspection is what the actor says of itself: names, never contents.
type Inspection struct {
	Dir        string   `json:"dir,omitempty"`
	Version    uint64   `json:"version"`
	ConfigMaps []string `json:"configMaps"` // of the folder
	Secrets    int      `json:"secrets"`    // of the folder
	// RuntimeClasses are those of the folder.
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`
	// APIServer counts the objects of the API server that pods here name.
	APIServer *Followed                  `json:"apiServer,omitempty"`
	Problems  []messages.ManifestProblem `json:"problems,omitempty"`
}

// Followed counts objects of the API server: those that are there, those that are not, and those not read yet.
type Followed struct {
	There   int `json:"there"`
	Missing int `json:"missing"`
	Unread  int `json:"unread"`
}

func (a *actor) Inspect() any {
	in := Inspection{Dir: a.opts.Dir, Version: a.opts.Board.Version(), ConfigMaps: []string{}, Problems: a.problems()}
	if a.cluster != nil {
		in.APIServer = &Followed{}
		in.APIServer.There, in.APIServer.Missing, in.APIServer.Unread = a.opts.Board.Known()
	}
	if a.last.set != nil {
		in.Secrets = len(a.last.set.Secrets)
		for k := range a.last.set.ConfigMaps {
			in.ConfigMaps = append(in.ConfigMaps, k.Namespace+"/"+k.Name)
		}
		slices.Sort(in.ConfigMaps)
		in.RuntimeClasses = slices.Sorted(maps.Keys(a.last.set.RuntimeClasses))
	}
	return in
}
