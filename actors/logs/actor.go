// Package logs implements the actor that rotates the log files of containers, and links them for log shippers.
//
// A runtime writes to one file until it reopens the path (ReopenContainerLog). The actor renames a log that is too large, and
// asks the runtime to reopen it. It then compresses older rotated files, and removes those beyond the limit. A crash may follow
// any step: the next look continues from the state on disk. Only files beyond the limit are lost.
//
// The size of each log, and each link, is checked once per containerLogMonitorInterval. When the runtime actor reports a change
// of a pod's containers, the pod's logs and links are checked soon after. The newest rotated file stays uncompressed. A file
// that is not regular is neither followed nor rotated. Only links to this agent's logs are removed. As in the kubelet, the
// folder of links does not depend on podLogsDir.
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

// CRI is the part of the CRI that the actor uses. *cri.Client implements it.
type CRI interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// Options configures the actor.
type Options struct {
	CRI CRI
	// Operations is the process's table of operations. The key of a rotation is "<uid>/log/<container ID>".
	Operations *cri.Operations
	// PodLogsDir holds the pods' log folders [podLogsDir]. LinksDir holds the links to logs; empty for no links.
	PodLogsDir, LinksDir string
	// MaxSize is the size in bytes from which a log is rotated [containerLogMaxSize]; negative: never.
	MaxSize int64
	// MaxFiles limits the number of files of a log [containerLogMaxFiles]; at least 2.
	MaxFiles int
	// Workers limits the number of logs rotated at once [containerLogMaxWorkers].
	Workers int
	// Every is the interval of regular looks [containerLogMonitorInterval].
	Every time.Duration
}

// New returns the constructor of the logs actor.
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
	linkProblem string            // the latest one logged
}

// Timers and results of work.
type (
	lookDue    struct{}
	lookResult struct {
		logs     []logState
		complete bool // all logs and links
		links    error
	}
	maintenanceResult struct {
		container container
		problem   error
	}
)

// PodUID implements messages.Subject.
func (m maintenanceResult) PodUID() string { return m.container.uid }

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
	case lookResult:
		a.linked(ctx, m)
		a.do(ctx, a.schedule.handleLook(m.logs, ctx.Now()))
	case maintenanceResult:
		a.do(ctx, a.schedule.handleMaintenance(m.container, m.problem))
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
		case maintenance:
			now := ctx.Now()
			ctx.Do(supervisors.Work{Name: "rotate " + e.log, Timeout: tendTimeout, Run: func(ctx context.Context) any {
				return maintenanceResult{e.container, a.work.tend(ctx, e.container, now)}
			}})
		case warn:
			ctx.Log().Warn("could not rotate a container's log; no output is lost",
				"pod", e.uid, "container", e.id, "log", e.log, "error", e.problem)
		}
	}
}

func (a *actor) linked(ctx supervisors.Context, l lookResult) {
	switch {
	case !l.complete: // the next complete look finds the same problems
	case l.links == nil:
		a.linkProblem = ""
	case l.links.Error() != a.linkProblem:
		a.linkProblem = l.links.Error()
		ctx.Log().Warn("could not create or remove some links to logs; log shippers may miss them",
			"folder", a.opts.LinksDir, "error", l.links)
	}
}

// inspection is the actor's answer to Inspect.
type inspection struct {
	Phase    phase             `json:"phase"`
	Waiting  []string          `json:"waiting,omitempty"` // containers with a pending rotation
	Working  int               `json:"working"`
	Problems map[string]string `json:"problems,omitempty"` // by container
	Links    string            `json:"links,omitempty"`    // the problem with links
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	out := inspection{Phase: a.schedule.phase, Working: len(a.schedule.active), Problems: maps.Clone(a.schedule.problems),
		Links: a.linkProblem}
	for _, c := range a.schedule.queue {
		out.Waiting = append(out.Waiting, c.id)
	}
	return out
}
