package logs

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// CRI is what the actor needs of the CRI's client; *cri.Client has it.
type CRI interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// Operations is the table of operations as the actor needs it; *cri.Operations has it. A log is worked on under
// "<uid>/log/<container ID>".
type Operations interface {
	Do(ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error)) (any, error)
}

// Options are what the actor needs.
type Options struct {
	CRI        CRI
	Operations Operations
	// PodLogsDir holds the pods' log folders [podLogsDir], LinksDir the links to logs; empty: there are none.
	PodLogsDir, LinksDir string
	// MaxSize is the size in bytes from which a log is rotated [containerLogMaxSize]; negative: never.
	MaxSize int64
	// MaxFiles is how many files there may be of a log [containerLogMaxFiles], at least 2.
	MaxFiles int
	// Workers is how many logs are worked on at once [containerLogMaxWorkers].
	Workers int
	// Every is between looks while nothing happens [containerLogMonitorInterval].
	Every time.Duration
}

// New makes the constructor of the logs actor.
func New(opts Options) supervisors.Constructor {
	return func(string) supervisors.Actor {
		return &actor{opts: opts, work: work{opts}, schedule: newSchedule(opts.MaxSize, opts.Workers, opts.Every)}
	}
}

type actor struct {
	opts        Options
	work        work
	schedule    *schedule
	linkProblem string // as it was logged last
}

// Timers and results of work.
type (
	lookDue struct{ all bool }
	looked  struct {
		found []sight
		all   bool
		links error
	}
	tended struct {
		container container
		problem   error
	}
)

// PodUID implements messages.Subject.
func (m tended) PodUID() string { return m.container.uid }

const (
	lookTimeout = 2 * time.Minute
	// tendTimeout bounds the work on one log: most of it is compressing what was rotated away.
	tendTimeout = 10 * time.Minute
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.do(ctx, a.schedule.begin())
	case messages.ContainersChanged:
		a.do(ctx, a.schedule.changed(m.Facts.UID, containersOf(m.Facts)))
	case lookDue:
		a.do(ctx, a.schedule.due(m.all))
	case looked:
		if m.links != nil || m.all { // a look at some logs says nothing of the other links
			a.linked(ctx, m.links)
		}
		a.do(ctx, a.schedule.looked(m.found, m.all))
	case tended:
		a.do(ctx, a.schedule.tended(m.container, m.problem))
	default:
		ctx.Unhandled(msg)
	}
}

func (a *actor) do(ctx supervisors.Context, effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case look:
			ctx.Do(supervisors.Work{Name: "look at the logs of containers", Timeout: lookTimeout,
				Run: func(ctx context.Context) any {
					return a.work.look(ctx, e)
				}})
		case lookAfter:
			ctx.After(e.after, lookDue{e.all})
		case tend:
			now := ctx.Now()
			ctx.Do(supervisors.Work{Name: "rotate " + e.log, Timeout: tendTimeout, Run: func(ctx context.Context) any {
				return tended{e.container, a.work.tend(ctx, e.container, now)}
			}})
		case warn:
			ctx.Log().Warn("could not rotate the log of a container; nothing that was written is lost", "pod", e.uid, "container",
				e.id,
				"log", e.log, "error", e.problem)
		}
	}
}

// linked logs once what is wrong with the links.
func (a *actor) linked(ctx supervisors.Context, problem error) {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if text != a.linkProblem && text != "" {
		ctx.Log().Warn("could not make or remove all links to logs; log shippers may miss some",
			"folder", a.opts.LinksDir, "error", problem)
	}
	a.linkProblem = text
}

// inspection is what the actor says of itself.
type inspection struct {
	Phase    phase             `json:"phase"`
	Waiting  []string          `json:"waiting,omitempty"` // containers whose logs are to be worked on
	Working  int               `json:"working"`
	Problems map[string]string `json:"problems,omitempty"` // by container
	Links    string            `json:"links,omitempty"`    // what is wrong with them
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	out := inspection{Phase: a.schedule.phase, Working: len(a.schedule.active), Problems: map[string]string{},
		Links: a.linkProblem}
	for _, c := range a.schedule.queue {
		out.Waiting = append(out.Waiting, c.id)
	}
	for id, text := range a.schedule.problems {
		out.Problems[id] = text
	}
	return out
}
