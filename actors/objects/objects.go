// Package objects is the actor that holds the ConfigMaps, Secrets, Services and RuntimeClasses that this node needs. Static
// pods use a folder of manifests; pods of the API server use the objects there (cluster.go). Either may be absent.
//
// A worker waits for changes of the folder, reads the changed files, and returns one result (reader.go). The actor publishes
// it and notifies volumes and images. Objects of the API server are read and followed (follow.go) if pods of this node name
// them, and published as they arrive. A broken file or an absent server removes nothing: the last objects stay in force while
// the agent lives. Nothing is kept on disk, because of the Secrets. Data of objects is never logged, sent, or shown.
//
// All Services with an address are followed, since environments list them. A ConfigMap or Secret is followed only if a pod
// here names it: one read, then a reflector of that object, as a node may see no others. An immutable object is not followed,
// but read again for each new pod that names it, since it may have been replaced by another of its name. The new pod waits for
// that read.
// After a restored backup, a reflector receives nothing until its resource version is reached again. The agent must be
// restarted then, like a kubelet. Objects of the folder and of the API server are kept apart, and each pod reads from its own
// set. Mounts, pulls and starts wait with a reason for objects that have not been read. RuntimeClasses name the handler of a
// new sandbox; an existing sandbox keeps its handler. Static pods see the classes of the folder and, in a cluster, of the API
// server.
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

// Options configure the actor.
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

const defaultCheckFrequency = 20 * time.Second

// New makes the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = defaultCheckFrequency
	}
	memory := newMemory(opts.Dir) // outlives the actor, with the good versions of files that are broken now
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
	checkDue       struct{}
	lookDue        struct{}
	clusterChanged struct{} // of the API server
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.beginFolder(ctx)
		a.beginCluster(ctx)
		ctx.After(a.opts.CheckFrequency, checkDue{})
	case messages.ObjectsWanted:
		if a.cluster != nil {
			a.cluster.setPods(m.Pods)
		}
	case clusterChanged:
		a.tell(ctx)
		a.awaitNews(ctx)
	case result:
		a.onRead(ctx, m)
	case checkDue:
		ctx.After(a.opts.CheckFrequency, checkDue{})
		a.onCheck(ctx)
	case lookDue:
		a.watch.Wake(false)
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
	ctx.OnStop(w.Close)
	a.asked = ctx.Now()
	a.read(ctx, true)
}

// beginCluster starts without pods: they arrive with ObjectsWanted after ServiceStarted.
func (a *actor) beginCluster(ctx supervisors.Context) {
	if a.opts.Client == nil {
		return
	}
	a.cluster = newCluster(a.opts)
	c := a.cluster
	c.followServices()
	c.followRuntimeClasses()
	ctx.OnStop(c.stop)
	a.awaitNews(ctx)
}

func (a *actor) awaitNews(ctx supervisors.Context) {
	c := a.cluster
	ctx.Do(supervisors.Work{Name: "AwaitObjects", Waits: true, Run: func(ctx context.Context) any {
		c.await(ctx)
		supervisors.Awaited(ctx)
		return clusterChanged{}
	}})
}

// read sends the worker to read, at once or when something changes.
func (a *actor) read(ctx supervisors.Context, now bool) {
	w, m := a.watch, a.memory
	ctx.Do(supervisors.Work{Name: "ReadObjects", Waits: true, Run: func(ctx context.Context) any {
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

// onCheck starts a new reading. If the reading of the last check has not ended, the file system does not answer. That is
// reported, because the published state may be out of date.
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

// log logs new problems, and returns whether the set has changed.
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

// Inspection is the state of the actor: names, never contents.
type Inspection struct {
	Dir        string   `json:"dir,omitempty"`
	Version    uint64   `json:"version"`
	ConfigMaps []string `json:"configMaps"` // of the folder
	Secrets    int      `json:"secrets"`    // of the folder
	// RuntimeClasses are the classes of the folder.
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`
	// APIServer counts the objects of the API server that pods here name.
	APIServer *ObjectCounts              `json:"apiServer,omitempty"`
	Problems  []messages.ManifestProblem `json:"problems,omitempty"`
}

// ObjectCounts counts objects of the API server: those that are there, those that are not, and those not read yet.
type ObjectCounts struct {
	There   int `json:"there"`
	Missing int `json:"missing"`
	Unread  int `json:"unread"`
}

func (a *actor) Inspect() any {
	in := Inspection{Dir: a.opts.Dir, Version: a.opts.Board.Version(), ConfigMaps: []string{}, Problems: a.problems()}
	if a.cluster != nil {
		in.APIServer = &ObjectCounts{}
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
