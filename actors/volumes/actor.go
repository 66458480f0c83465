package volumes

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/internal/suspend"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are the parameters of New.
type Options struct {
	// RootDir is the kubelet's --root-dir, an absolute path. The folders of pods are in <RootDir>/pods.
	RootDir    string
	Operations Operations
	// Parallel is the number of pods of one namespace that are mounted or unmounted concurrently; 0 means 10. Mounts that
	// request tokens from the API server, and renewals of tokens, have a limit of the same size each. For all namespaces
	// together each limit is twice as high.
	Parallel int
	// Node describes the machine.
	Node kinds.Facts
	// Storage manages persistent volumes; nil without an API server.
	Storage *persistent.Storage
	// Asleep returns for how long the machine was suspended since the process began; nil: suspend.Total.
	Asleep func() time.Duration
}

// Operations is the process-wide table of operations. An operation outlives the actor that started it.
type Operations interface {
	reconcile.Operations
	// Settle blocks until no operation with the key prefix is in progress, or ctx ends. The error names the pending operations.
	Settle(ctx context.Context, prefix string) error
	// Progress returns the last progress note of the operation with the key, or nil.
	Progress(key string) any
}

const (
	// mountTimeout and unmountTimeout are how long the actor waits for an operation, which continues without it. The end of a
	// pod waits for its volumes no longer than the sum of both: for a hung mount, and then for the unmount.
	mountTimeout     = time.Minute
	unmountTimeout   = 30 * time.Second
	operationsPrefix = "volumes/"
)

// New returns the constructor of the volumes actor. The actor handles MountVolumes, UnmountVolumes, ObjectsChanged and
// PodFoldersWanted; see the messages for their contracts.
func New(opts Options) supervisors.Constructor { return newWith(opts, plugins(opts.Storage)) }

func newWith(opts Options, list []kinds.Plugin) supervisors.Constructor {
	if opts.Parallel <= 0 {
		opts.Parallel = 10
	}
	if opts.Asleep == nil {
		opts.Asleep = suspend.Total
	}
	d := driver{disk{asleep: opts.Asleep, rootDir: opts.RootDir, plugins: list, ops: opts.Operations, node: opts.Node,
		storage: opts.Storage, timeouts: defaultTimeouts}}
	most := 2 * opts.Parallel // one namespace gets half of the places
	places := []int{onDisk: most, asking: most, renewal: most, storing: -1}
	return func(string) supervisors.Actor {
		a := &actor{node: opts.Node, asleep: opts.Asleep, slept: opts.Asleep(),
			held: heldFolders{rootDir: opts.RootDir, alone: opts.Storage == nil, remains: map[string]remains{},
				staged: map[string]*remains{}},
			persistence: persistence{storage: opts.Storage}}
		a.volumes = reconcile.New(reconcile.Options[*v1.Pod, state]{
			Name: "volumes", Driver: d, Report: a.reported, Joins: joins,
			Operations: opts.Operations, Prefix: operationsPrefix, OperationTimeout: kinds.OperationTimeout,
			Rules: reconcile.Rules[*v1.Pod, state]{
				Same: kinds.SameVolumes, Retry: kinds.Retry, Judge: judge, Lane: a.lane(d), Places: places, Share: share,
				Timeout: mountTimeout, RemoveTimeout: unmountTimeout, Grace: 2,
			},
		})
		if opts.Storage != nil {
			a.staged = persistent.NewUnstager(opts.Storage, a.unstaged)
		}
		return a
	}
}

type actor struct {
	node    kinds.Facts
	asleep  func() time.Duration
	slept   time.Duration // of it, what timers take into account
	volumes *reconcile.Reconciler[*v1.Pod, state]
	held    heldFolders
	served  serverMounts
	persistence
}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		// The actor starts without state and assumes nothing. Pods repeat their requests, and receive results after that.
		a.served.find(ctx, a.held.rootDir)
		a.beginStorage(ctx)
	case messages.MountVolumes:
		a.volumes.Ensure(ctx, m.UID, m.Pod)
	case messages.UnmountVolumes:
		a.node.NFS.Stop(m.UID)          // a server that does not answer must not delay the end of the pod
		a.node.Forget(types.UID(m.UID)) // an API server that does not answer must not delay the end of the pod
		if m.Remove {
			a.volumes.Remove(ctx, m.UID)
		} else {
			a.volumes.Ensure(ctx, m.UID, nil)
		}
	case messages.PodFoldersWanted:
		a.wake(ctx)
		a.volumes.Sweep(ctx, m.UIDs, true)
		a.volumes.Touch(ctx, a.stale()...) // trust bundles change without a message
		a.sweepStorage(ctx)
		a.held.look(ctx, false)
	case servedFound:
		a.served.took(m)
	case heldFound:
		a.held.took(ctx, m)
	case messages.ObjectsChanged:
		a.volumes.Touch(ctx, a.stale()...)
	default:
		if !a.receiveStorage(ctx, msg) && !a.volumes.Receive(ctx, msg) {
			ctx.Unhandled(msg)
		}
	}
}

// wake looks at the volumes that are renewed at a date, after the machine was suspended: their timers stopped meanwhile.
func (a *actor) wake(ctx supervisors.Context) {
	slept := a.asleep()
	if slept-a.slept < suspend.Short {
		return
	}
	ctx.Log().Info("the machine was suspended or its clock was set; renewing expired tokens in volumes",
		"by", slept-a.slept)
	a.slept = slept
	var uids []string
	a.volumes.Each(func(r report) {
		if r.Desired != nil && !r.Actual.next().IsZero() {
			uids = append(uids, r.Key)
		}
	})
	a.volumes.Touch(ctx, uids...)
}

// stale returns the pods with volumes that may hold outdated ConfigMaps, Secrets or trust bundles.
func (a *actor) stale() (uids []string) {
	a.volumes.Each(func(r report) {
		if r.Desired != nil && kinds.AnyHolds(r.Desired, kinds.OfObjects) &&
			r.Actual.version != a.node.VersionOf(r.Desired) {
			uids = append(uids, r.Key)
		}
	})
	return uids
}

// reported sends the result of an operation to its pod.
func (a *actor) reported(ctx supervisors.Context, r report) {
	to := messages.PodAddress(r.Key)
	defer a.storageReported(ctx)
	if changed := a.held.removal(ctx.Now(), r); changed || r.Desired == nil && (r.News || r.Err == nil && len(a.held.found) > 0) {
		a.held.look(ctx, true)
	}
	if r.Err == nil || r.News {
		for _, e := range r.Actual.events {
			ctx.Tell(messages.Events, e)
		}
	}
	switch {
	case r.Remove && !r.Asked: // no pod awaits it; held reports a failure
	case r.Desired == nil:
		m := messages.VolumesUnmounted{UID: r.Key, Removed: r.Remove}
		if r.Err != nil {
			err := r.Err
			if calls := a.storage.Calls(r.Key); len(calls) > 0 && !isEnded(err) {
				err = calls[0]
			}
			m.Left, m.Cause, m.Published = messages.OneLine(err), messages.CauseOf(err), a.storage.Publishes(r.Key)
		} else if !r.Remove {
			a.volumes.Forget(ctx, r.Key) // the folder stays until the pod is removed
		}
		ctx.Tell(to, m)
	default:
		failed := r.Actual.failed(r.Key)
		for _, m := range failed {
			ctx.Tell(to, m)
		}
		if len(failed) == 0 {
			ctx.Tell(to, messages.VolumesMounted{UID: r.Key, Paths: r.Actual.paths(), Mounts: r.Actual.mounts(),
				Groups: r.Actual.groups()})
		} else if r.Actual.mayGoOn() { // the wait for others ended during the mount
			a.volumes.Touch(ctx, r.Key)
		}
	}
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any { return a.volumes.Inspect() }
