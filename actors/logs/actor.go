// Package logs is the actor that keeps the log files of containers small, and links them where log shippers look.
//
// A runtime writes to one file until it is told to open its path anew (ReopenContainerLog). So a log that has grown too
// big is renamed, the runtime told, and what was rotated away before is compressed, or removed where there is too much
// of it. Every step can be the last one before a crash: the next look goes on from what the disk shows. Nothing that a
// container wrote is lost by it but what there is no room for.
//
// The size of each log, and each link, is looked at each containerLogMonitorInterval; those of one pod soon after runtime says
// that its containers changed. The newest rotated file stays uncompressed. A file that is not regular is neither followed nor
// rotated. Only links that lead to our logs are removed. As with the kubelet, the folder of links does not follow podLogsDir.
package logs

import (
	"context"
	"maps"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// CRI is what the actor needs of the CRI's client; *cri.Client has it.
type CRI interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// Options are what the actor needs.
type Options struct {
	CRI CRI
	// Operations is the process's table. A log is worked on under "<uid>/log/<container ID>".
	Operations *cri.Operations
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
	timer       supervisors.Timer // for the next look
	linkProblem string            // as it was logged last
}

// Timers and results of work.
type (
	lookDue struct{}
	looked  struct {
		found []sight
		whole bool // all logs and links
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
	// tendTimeout ends the work on one log when it makes no progress. Compressing rotated files takes most of the time.
	tendTimeout = 10 * time.Minute
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, lookDue:
		a.do(ctx, a.schedule.begin(ctx.Now()))
	case messages.ContainersChanged:
		a.do(ctx, a.schedule.changed(m.Facts.UID, containersOf(m.Facts)))
	case looked:
		a.linked(ctx, m)
		a.do(ctx, a.schedule.looked(m.found, ctx.Now()))
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
			supervisors.Cancel(a.timer)
			a.timer = ctx.After(e.after, lookDue{})
		case tend:
			now := ctx.Now()
			ctx.Do(supervisors.Work{Name: "rotate " + e.log, Timeout: tendTimeout, Run: func(ctx context.Context) any {
				return tended{e.container, a.work.tend(ctx, e.container, now)}
			}})
		case warn:
			ctx.Log().Warn("could not rotate the log of a container; nothing that was written is lost",
				"pod", e.uid, "container", e.id, "log", e.log, "error", e.problem)
		}
	}
}

func (a *actor) linked(ctx supervisors.Context, l looked) {
	switch {
	case !l.whole: // the next look at all has its problems, too
	case l.links == nil:
		a.linkProblem = ""
	case l.links.Error() != a.linkProblem:
		a.linkProblem = l.links.Error()
		ctx.Log().Warn("could not make or remove all links to logs; log shippers may miss some",
			"folder", a.opts.LinksDir, "error", l.links)
	}
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
	out := inspection{Phase: a.schedule.phase, Working: len(a.schedule.active), Problems: maps.Clone(a.schedule.problems),
		Links: a.linkProblem}
	for _, c := range a.schedule.queue {
		out.Waiting = append(out.Waiting, c.id)
	}
	return out
}
