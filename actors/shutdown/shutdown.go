// Package shutdown is the actor "shutdown": while the machine shuts down it ends the pods, group by group of their priorities,
// and lets the shutdown go on when that is done and the API server has their statuses, or the time is up.
//
// The inhibitor lock, and the state of the shutdown, belong to the process (Logind), so that a restart of the actor does not
// release the lock. pods records the failures on disk before it ends any pod, so that a restarted agent continues. The times
// of the last shutdown are recorded as well, in the kubelet's file (state.go).
//
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown
package shutdown

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Inhibitor delays the shutdown of the machine; *Logind does.
type Inhibitor interface {
	// Await blocks until the state differs from was, and returns whether a shutdown is in progress. At the end of ctx it
	// returns was. Without a shutdown, it holds the lock that delays the next one. With a ShortDelay it holds the lock, too.
	Await(ctx context.Context, was bool) (bool, error)
	// Release lets the shutdown go on. That it does already is no error.
	Release() error
	// Close releases the lock, after the end of the actor.
	Close() error
}

// Options configure the actor.
type Options struct {
	NodeName  string
	Groups    []Group
	Inhibitor Inhibitor
	Board     *board.Board
	// Unwritten returns the number of pods whose statuses an API server that answers lacks. It is called concurrently. nil: there
	// is no API server.
	Unwritten func() int
	// Unused returns the volumes that no pod has any more, and that are still staged for the node. It is called concurrently.
	// nil: there are none.
	Unused func(context.Context) []string
	// StatePath is where the times of the last shutdown are kept.
	StatePath string
	// State publishes the reason why shutdowns are not delayed; nil publishes none.
	State *State
}

const (
	reportEvery = 10 * time.Second
	awaitLimit  = time.Hour
	retryAfter  = time.Minute // where logind cannot be reached
	// statusLimit is how long a shutdown waits for the last statuses of its pods, and lookEvery the interval of the looks.
	statusLimit = 5 * time.Second
	lookEvery   = 100 * time.Millisecond
)

// New is the constructor of the actor.
func New(o Options) supervisors.Constructor {
	o.State = cmp.Or(o.State, &State{})
	return func(string) supervisors.Actor { return &actor{opts: o} }
}

type actor struct {
	opts     Options
	underway bool
	group    int // that is being ended
	// generation counts shutdowns. Messages of an earlier, cancelled one are dropped.
	generation int
	began      time.Time // when pods began to end
	reported   string    // the last trouble with logind
}

type (
	lockObserved struct {
		underway bool
		err      error
	}
	reportDue  struct{}
	awaitDue   struct{}
	groupEnded struct {
		generation int
		remaining  int      // pods that have not ended in time
		staged     []string // folders of the ended pods' volumes that are not unstaged
	}
	statusesWritten struct{ generation int }
	// workDone is the end of work that nothing waits for.
	workDone struct {
		trouble string // the last logged error
		err     error
	}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.await(ctx)
		ctx.After(reportEvery, reportDue{})
	case awaitDue:
		a.await(ctx)
	case lockObserved:
		a.onObserved(ctx, m)
	case reportDue:
		ctx.After(reportEvery, reportDue{})
		a.report(ctx)
		if a.underway && a.group < len(a.opts.Groups) {
			a.evict(ctx) // again: messages may be lost, and pods may have arrived
		}
	case groupEnded:
		if m.generation != a.generation {
			return
		}
		if m.remaining > 0 {
			ctx.Log().Warn("pods did not terminate in their part of the shutdown period", "pods", m.remaining, "priority",
				a.opts.Groups[a.group].Priority)
		}
		if len(m.staged) > 0 {
			ctx.Log().Warn("volumes of terminated pods are not unstaged; pods of their drivers are terminated next",
				"folders", m.staged)
		}
		a.end(ctx, a.group+1)
	case statusesWritten:
		if m.generation == a.generation {
			a.release(ctx)
		}
	case workDone:
		if m.err != nil {
			ctx.Log().Warn(m.trouble, "error", m.err)
		}
	default:
		ctx.Unhandled(msg)
	}
}

// await waits for the begin of a shutdown, or for its cancellation.
func (a *actor) await(ctx supervisors.Context) {
	inhibitor, was := a.opts.Inhibitor, a.underway
	ctx.Do(supervisors.Work{Name: "await a shutdown of the machine", Timeout: awaitLimit, Routine: true,
		Run: func(ctx context.Context) any {
			underway, err := inhibitor.Await(ctx, was)
			return lockObserved{underway, err}
		}})
}

func (a *actor) onObserved(ctx supervisors.Context, m lockObserved) {
	if short, is := errors.AsType[ShortDelay](m.err); is {
		ctx.Log().Warn("a shutdown of the machine may not wait long enough for pods", "reason", short)
		a.opts.State.store("a shutdown of the machine may not wait long enough for pods: " + short.Error())
		a.reported = ""
		a.await(ctx)
		return
	}
	if m.err != nil {
		if text := m.err.Error(); text != a.reported {
			ctx.Log().Warn("graceful node shutdown is not possible: the machine will not wait for pods when it shuts down",
				"reason", text)
			a.reported = text
			a.opts.State.store("a shutdown of the machine does not wait for pods: " + text)
		}
		ctx.After(retryAfter, awaitDue{})
		return
	}
	a.reported = ""
	a.opts.State.store("")
	if m.underway != a.underway {
		a.underway = m.underway
		a.generation++
		a.report(ctx)
		event := "Shutdown manager detected shutdown cancellation"
		if a.underway {
			event = "Shutdown manager detected shutdown event"
		}
		node := a.opts.NodeName
		ctx.Tell(messages.Events, messages.NodeEvent(node, v1.EventTypeNormal, messages.EventShutdown, event, ctx.Now()))
		if a.underway {
			ctx.Log().Warn("the machine is shutting down; terminating pods", "within", total(a.opts.Groups))
			a.began = ctx.Now()
			a.keepTimes(ctx, a.began, time.Time{})
			a.end(ctx, 0)
		} else {
			ctx.Log().Warn("the machine's shutdown was cancelled: new pods are admitted again, and static ones that were ended " +
				"are run again")
		}
	}
	a.await(ctx)
}

func (a *actor) report(ctx supervisors.Context) {
	ctx.Tell(messages.Pods, messages.NodeShutdownObserved{Underway: a.underway})
	ctx.Tell(messages.Registration, messages.NodeShutdownObserved{Underway: a.underway})
}

// end ends the pods of a group, or lets the shutdown go on after the last one.
func (a *actor) end(ctx supervisors.Context, group int) {
	a.group = group
	if group == len(a.opts.Groups) {
		a.keepTimes(ctx, time.Time{}, ctx.Now())
		a.awaitStatuses(ctx)
		return
	}
	a.evict(ctx)
	o, generation := a.opts, a.generation
	there := func(s *board.Snapshot) []*v1.Pod { return members(o.Groups, group, s.Pods) }
	unused := o.Unused
	if group == len(o.Groups)-1 {
		unused = nil // the drivers of volumes are pods of the last group
	}
	ctx.Do(supervisors.Work{Name: "await the end of pods", Timeout: o.Groups[group].Time + time.Nanosecond,
		Run: func(ctx context.Context) any {
			before, _ := lookAt(ctx, unused)
			for s := o.Board.Now(); ; {
				left := len(there(s)) + s.Unclaimed
				if s.Audited && left == 0 { // before an audit, pods may run that are not published
					return groupEnded{generation, 0, awaitUnstaged(ctx, unused, before)}
				}
				var err error
				if s, err = o.Board.After(ctx, s.Version); err != nil {
					return groupEnded{generation, left, nil}
				}
			}
		}})
}

// awaitUnstaged waits until the volumes of the ended pods are unstaged, because their drivers may be pods of the next group
// (kubernetes/kubernetes#115148). It returns the volumes that are still staged at the end of ctx. Volumes that were unused before
// the group's end are not awaited: they may stay so, and must not delay each group.
func awaitUnstaged(ctx context.Context, unused func(context.Context) []string, before []string) (staged []string) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		now, ok := lookAt(ctx, unused)
		if !ok {
			return staged
		}
		if staged = slices.DeleteFunc(now, func(v string) bool { return slices.Contains(before, v) }); len(staged) == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return staged
		}
	}
}

// lookAt returns the result of unused, or false at the end of ctx: a disk that hangs must not keep a group from its end.
func lookAt(ctx context.Context, unused func(context.Context) []string) ([]string, bool) {
	if unused == nil {
		return nil, true
	}
	result := make(chan []string, 1)
	go func() { result <- unused(ctx) }()
	select {
	case out := <-result:
		return out, true
	case <-ctx.Done():
		return nil, false
	}
}

// awaitStatuses waits until the API server has the last statuses of the pods, for a part of the time that is left. With the
// network gone, others would take the pods for running until the machine is back (kubernetes/kubernetes#112443). The API server
// may be one of the pods.
func (a *actor) awaitStatuses(ctx supervisors.Context) {
	unwritten, rest := a.opts.Unwritten, min(statusLimit, a.began.Add(total(a.opts.Groups)).Sub(ctx.Now()))
	if unwritten == nil || rest <= 0 {
		a.release(ctx)
		return
	}
	generation := a.generation
	ctx.Do(supervisors.Work{Name: "await the statuses of ended pods", Timeout: rest, Run: func(ctx context.Context) any {
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for first := true; first || unwritten() > 0; first = false { // the last one is on its way
			select {
			case <-look.C:
			case <-ctx.Done():
				return statusesWritten{generation}
			}
		}
		return statusesWritten{generation}
	}})
}

func (a *actor) release(ctx supervisors.Context) {
	ctx.Log().Info("the machine's shutdown continues")
	release := a.opts.Inhibitor.Release
	ctx.Do(supervisors.Work{Name: "let the shutdown go on", Timeout: reportEvery, Run: func(context.Context) any {
		return workDone{"could not let the machine's shutdown go on", release()}
	}})
}

// evict ends the pods of the group, and later arrivals in earlier groups.
func (a *actor) evict(ctx supervisors.Context) {
	for group := range a.group + 1 {
		for _, pod := range members(a.opts.Groups, group, a.opts.Board.Now().Pods) {
			ctx.Tell(messages.Pods, messages.EvictPod{UID: string(pod.UID), Failure: failure(a.opts.Groups[group], pod)})
		}
	}
}
