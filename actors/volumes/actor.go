package volumes

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	// RootDir is the kubelet's --root-dir, absolute; what pods see of the host lies in <RootDir>/pods.
	RootDir    string
	Operations Operations
	// Log gets what happens in operations, outside any actor; nil: slog.Default().
	Log *slog.Logger
	// Parallel is how many pods are mounted or unmounted at a time; 0 is 10. So many others may ask the API server for tokens, and
	// so many renew them.
	Parallel int
	// Node is what volumes need to know of the machine.
	Node Facts
}

// Facts are what volumes need to know of the machine. Immutable.
type Facts struct {
	// Allocatable is what pods can have of the machine; zero stands for not known. It bounds what lies in memory, and is
	// what the downward API says of limits that are not set.
	Allocatable v1.ResourceList
	// Objects are the ConfigMaps and Secrets; nil where this node has none.
	Objects *objectset.Board
	// Tokens gives service account tokens; nil where there is no API server.
	Tokens Tokens
	log    *slog.Logger
}

// The actor's patience with an operation, which goes on without it. A pod's ending waits for its volumes no longer than
// both together: a mount that hangs, and then the unmount.
const (
	mountPatience   = time.Minute
	unmountPatience = 30 * time.Second
	lookPatience    = 30 * time.Second
)

// New makes the constructor of the volumes actor. It answers MountVolumes, UnmountVolumes, ObjectsChanged and PodFoldersWanted; see the
// messages for what each promises.
func New(opts Options) supervisors.Constructor { return newWith(opts, plugins) }

func newWith(opts Options, list []plugin) supervisors.Constructor {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 10
	}
	opts.Node.log = opts.Log
	return func(string) supervisors.Actor {
		m := newMachine(opts.Parallel)
		m.versionOf = opts.Node.Objects.VersionOf
		return &actor{
			machine: m,
			disk:    disk{rootDir: opts.RootDir, plugins: list, ops: opts.Operations, node: opts.Node, log: opts.Log, patience: patient},
		}
	}
}

type actor struct {
	machine *machine
	disk    disk
	looking bool // the folders of pods are being listed
	again   bool // and have to be once more
}

// podEvent is the result of work or a timer: an event of one pod.
type podEvent struct {
	uid string
	ev  any
}

// PodUID implements messages.Subject.
func (e podEvent) PodUID() string { return e.uid }

// foldersFound is the result of looking at what is on the disk.
type foldersFound struct {
	uids []string
	err  error
}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		// Nothing is known, and nothing is assumed: pods ask again, and are told after that what is there.
	case messages.MountVolumes:
		a.do(ctx, a.machine.on(m.UID, mountAsked{m.Pod}, ctx.Now()))
	case messages.UnmountVolumes:
		a.do(ctx, a.machine.on(m.UID, unmountAsked{m.Remove}, ctx.Now()))
	case messages.PodFoldersWanted:
		a.machine.onWanted(m.UIDs)
		a.look(ctx)
	case messages.ObjectsChanged:
		a.do(ctx, a.machine.onObjects(ctx.Now()))
	case foldersFound:
		a.found(ctx, m)
	case podEvent:
		a.do(ctx, a.machine.on(m.uid, m.ev, ctx.Now()))
	default:
		ctx.Unhandled(msg)
	}
}

// do carries out effects.
func (a *actor) do(ctx supervisors.Context, effects []effect) {
	for _, e := range effects {
		disk, uid, turn, lane := a.disk, e.uid, e.turn, e.lane
		switch what := e.what.(type) {
		case moved:
			ctx.Log().Debug("volumes of a pod", "pod", uid, "from", what.from, "to", what.to)
			if disk.node.Tokens != nil && (what.to == abandoning || what.to == unmounting) {
				disk.node.Tokens.Forget(types.UID(uid)) // an API server that does not answer keeps no pod from its end
			}
		case tell:
			ctx.Tell(messages.PodAddress(uid), what.msg)
		case retryAfter:
			ctx.After(what.d, podEvent{uid, retryDue{turn}})
		case noteLeft:
			if a.machine.note(uid, what.left) {
				ctx.Log().Warn("something of a pod's folder remains; it is tried again with the next sweep", "pod", uid, "reason", what.left)
			}
		case noteFailures:
			for _, t := range what.troubles {
				ctx.Log().Warn("a volume cannot be mounted", "pod", uid, "volume", t.volume, "reason", t.message, "retryAt", t.retryAt)
			}
		case beginMount:
			ctx.Do(supervisors.Work{Name: "mount " + uid, Timeout: mountPatience, Run: func(ctx context.Context) any {
				out := disk.mountPod(ctx, uid, what.pod, what.only...)
				out.lane = lane
				return podEvent{uid, mountEnded{turn, out}}
			}})
		case beginUnmount:
			ctx.Do(supervisors.Work{Name: "unmount " + uid, Timeout: unmountPatience, Run: func(ctx context.Context) any {
				return podEvent{uid, unmountEnded{turn, disk.unmountPod(ctx, uid, what.remove)}}
			}})
		case beginVerify:
			ctx.Do(supervisors.Work{Name: "verify " + uid, Timeout: lookPatience, Run: func(ctx context.Context) any {
				return podEvent{uid, verifyEnded{turn, disk.stillMounted(ctx, uid, what.pod)}}
			}})
		}
	}
}

// look lists what is on the disk, one listing at a time.
func (a *actor) look(ctx supervisors.Context) {
	if a.looking {
		a.again = true
		return
	}
	a.looking, a.again = true, false
	disk := a.disk
	ctx.Do(supervisors.Work{Name: "list pod folders", Timeout: lookPatience, Run: func(ctx context.Context) any {
		uids, err := disk.podFolders(ctx)
		return foldersFound{uids, err}
	}})
}

func (a *actor) found(ctx supervisors.Context, m foldersFound) {
	a.looking = false
	if m.err != nil {
		ctx.Log().Warn("the folders of pods cannot be listed; what is left behind stays", "error", m.err)
	} else {
		a.do(ctx, a.machine.onFound(m.uids, ctx.Now()))
	}
	if a.again {
		a.look(ctx)
	}
}
