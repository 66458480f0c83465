// Package prober is the actor that runs every probe of the node. All probes share one clock (a heap of due times and one
// timer) and bounded pools of workers. state.go decides about thresholds and reports, and schedule.go about the time and
// order of runs. Each action of a probe is a file (exec.go, http.go, tcp.go, grpc.go). prober.go carries out the effects.
//
// Commands and network probes have a pool of workers each. Half of a pool is for everybody; of the other half a pod has an
// eighth of the pool at most, so that probes which hang hold up few others. The time that a probe waits for its worker
// does not count against the application. The end of a container or of its pod cancels a probe that runs.
package prober

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// CRI is the part of the runtime's client that probes use. *cri.Client implements it.
type CRI interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (cri.ExecResult, error)
}

// Options configure the prober.
type Options struct {
	CRI CRI
	// RootDir has the pods' folders, in which the last words are kept, e.g. /var/lib/kubelet.
	RootDir string
	// UserAgent is sent by HTTP and gRPC probes: "kube-probe/<major>.<minor>".
	UserAgent string
	// Commands is how many exec probes run at a time; 0 is 24. Of others it is 256.
	Commands int
	// Events is true if failures are sent to the events actor.
	Events bool
	// Lateness receives the delays of probes; it may be nil.
	Lateness *Lateness
	// Observe is called after each completed run. It is called outside the mailbox and must not block; it may be nil.
	Observe func(Run)
	// Random gives numbers in [0,1) for jitter; nil is math/rand's.
	Random func() float64
}

// Run is one run of a probe, for whoever counts them.
type Run struct {
	Pod       *v1.Pod // immutable
	Container string
	Kind      messages.ProbeKind
	Result    string // "success", "warning", "failure" or "unknown"
	Took      time.Duration
}

// Timeouts for the parts of a run outside the application: the runtime's queue and answer, the disk.
const (
	slack       = 5 * time.Minute
	diskTimeout = 30 * time.Second
)

// New makes the actor of the kind "prober". It answers WatchProbes.
func New(opts Options) supervisors.Constructor {
	limits := [pools]int{commands: cmp.Or(opts.Commands, 24), network: 256}
	opts.Lateness = cmp.Or(opts.Lateness, &Lateness{})
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	return func(string) supervisors.Actor {
		return &actor{opts: opts, state: newState(limits, opts.Random), cuts: map[*probe]context.CancelFunc{}}
	}
}

type actor struct {
	opts   Options
	state  *state
	timer  supervisors.Timer
	at     time.Time // of timer
	late   lateRuns
	delays delays                        // as last published, without the present queues
	cuts   map[*probe]context.CancelFunc // cancel runs in progress
}

type (
	tick      struct{}
	runResult struct {
		probe   *probe
		outcome outcome
	}
	loadResult struct {
		uid string
		rec record
		err error
	}
	saveResult struct {
		uid string
		err error
	}
)

// Routine implements messages.Routine.
func (tick) Routine() {}

// Routine implements messages.Routine.
func (runResult) Routine() {}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		// The prober starts empty: pods send their probes, and their folders hold the last results.
	case messages.WatchProbes:
		a.do(ctx, a.state.watch(ctx.Now(), m))
	case tick:
		a.timer = nil
		a.do(ctx, a.state.tick(ctx.Now()))
	case runResult:
		a.cuts[m.probe]()
		delete(a.cuts, m.probe)
		a.do(ctx, a.state.ran(ctx.Now(), m.probe, m.outcome))
	case loadResult:
		if m.err != nil {
			ctx.Log().Warn("the last probe results of a pod cannot be read; probing its containers from the start",
				"pod", m.uid, "error", m.err)
		}
		a.do(ctx, a.state.read(ctx.Now(), m.uid, m.rec))
	case saveResult:
		if m.err != nil {
			ctx.Log().Warn("the probe results of a pod cannot be written", "pod", m.uid, "error", m.err)
		}
		a.do(ctx, a.state.wrote(m.uid, m.err != nil))
	default:
		ctx.Unhandled(msg)
	}
	a.plan(ctx)
	a.publish()
}

// plan sets the one timer.
func (a *actor) plan(ctx supervisors.Context) {
	at := a.state.next()
	if a.timer != nil && a.at.Equal(at) {
		return
	}
	supervisors.Cancel(a.timer)
	a.timer = nil
	if !at.IsZero() {
		a.at = at
		a.timer = ctx.After(max(at.Sub(ctx.Now()), 0), tick{})
	}
}

func (a *actor) do(ctx supervisors.Context, effects []effect) {
	for _, p := range a.state.cut {
		if cut := a.cuts[p]; cut != nil {
			cut()
		}
	}
	a.state.cut = nil
	for _, e := range effects {
		switch e := e.(type) {
		case report:
			ctx.Tell(messages.PodAddress(e.results.UID), e.results)
		case run:
			a.run(ctx, e)
		case logNote:
			a.note(ctx, e)
		case podEvent:
			if a.opts.Events && e.pod != nil {
				ctx.Tell(messages.Events, messages.PodEvent(e.pod, e.container, v1.EventTypeWarning, e.reason, e.message,
					ctx.Now()))
			}
		case load:
			dir := a.opts.RootDir
			ctx.Do(supervisors.Work{Name: "read probe results", Timeout: diskTimeout, Run: func(context.Context) any {
				rec, err := loadRecord(dir, e.uid)
				return loadResult{e.uid, rec, err}
			}})
		case save:
			dir := a.opts.RootDir
			ctx.Do(supervisors.Work{Name: "keep probe results", Timeout: diskTimeout, Run: func(context.Context) any {
				return saveResult{e.uid, saveRecord(dir, e.uid, e.rec)}
			}})
		}
	}
}

// run starts one run of a probe. Its time begins now; earlier delays do not count against the application.
func (a *actor) run(ctx supervisors.Context, e run) {
	late := ctx.Now().Sub(e.due)
	a.late.add(late)
	a.delays[e.probe.pool][e.probe.lane].begun(ctx.Now(), late)
	opts, of := a.opts, e.probe.pod.desired.Pod
	wanted, cut := context.WithCancel(context.Background())
	a.cuts[e.probe] = cut
	ctx.Do(supervisors.Work{Name: "probe", Timeout: e.job.timeout + slack, Routine: true, Run: func(c context.Context) any {
		c, stop := context.WithCancel(c)
		defer stop()
		defer context.AfterFunc(wanted, stop)()
		began := time.Now()
		o := e.job.act(cri.WithPriority(c, e.job.order), opts)
		if opts.Observe != nil && of != nil && wanted.Err() == nil {
			opts.Observe(Run{of, e.job.container.Name, e.job.kind, string(o.result), time.Since(began)})
		}
		return runResult{e.probe, o}
	}})
}

func (a *actor) note(ctx supervisors.Context, n logNote) {
	log := ctx.Log().With("pod", n.uid, "container", n.container, "probe", n.kind)
	switch {
	case n.result == unknown && n.changed:
		log.Warn("probe could not run; result unknown", "error", n.message)
	case n.result == unknown:
		log.Debug("probe still could not run", "error", n.message)
	case n.result == failure && n.changed:
		log.Warn("probe failed", "times", n.inRow, "message", n.message)
	case n.result == failure:
		log.Info("probe failed; below the failure threshold", "message", n.message)
	default:
		log.Info("probe succeeded")
	}
}
