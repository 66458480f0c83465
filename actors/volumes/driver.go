package volumes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
)

// Types of the reconciler. Its keys are the UIDs of pods. The desired state is the pod with its volumes; nil: no volumes are
// desired, and the folder stays. The actual state is that of the pod's volumes.
type (
	operation = reconcile.Operation[*v1.Pod, state]
	verdict   = reconcile.Verdict[state]
	report    = reconcile.Report[*v1.Pod, state]
)

// driver mounts and unmounts the volumes of pods.
type driver struct{ disk }

// Ensure implements reconcile.Driver. It mounts the volumes that are due. If none is due, it checks that all are still mounted.
// Otherwise, and if the state is unknown, it mounts all volumes.
func (d driver) Ensure(ctx context.Context, op operation) (state, error) {
	if op.Desired == nil {
		return state{}, ended(d.unmountPod(ctx, op.Key, false))
	}
	s := d.awake(op.Actual)
	s.events = nil // they have been sent
	s.version = d.node.VersionOf(op.Desired)
	only := s.due(op.Desired, op.Began, op.Actual.version != s.version)
	if s.volumes[""].err != nil {
		only = nil // the folder failed, so the requested volumes are no longer known
	} else if s.known() && len(only) == 0 && d.stillMounted(op.Key, op.Desired, s) {
		return d.reread(op.Key, op.Desired, s), nil
	}
	out := d.mountPod(ctx, op.Key, op.Desired, only...)
	for _, o := range out.volumes {
		if was, tried := s.volumes[o.name]; o.err == nil && !o.device && (!tried || was.err != nil) {
			metrics.Mounted(o.plugin, cmp.Or(was.since, op.Began))
		}
	}
	s.last = &out
	return s, nil
}

// awake returns the state with the present suspended time.
func (d driver) awake(s state) state {
	if d.asleep != nil {
		s.slept = d.asleep()
	}
	return s
}

// Remove implements reconcile.Driver. It unmounts the pod's volumes and removes its folder.
func (d driver) Remove(ctx context.Context, uid string) error {
	return ended(d.unmountPod(ctx, uid, true))
}

// removalError is the error of a removal that has ended, as opposed to one in progress.
type removalError struct{ error }

// Unwrap implements the interface of errors.Is.
func (e removalError) Unwrap() error { return e.error }

func isEnded(err error) bool {
	_, is := errors.AsType[removalError](err)
	return is
}

func ended(err error) error {
	if err != nil {
		err = removalError{err}
	}
	return err
}

// Inventory implements reconcile.Driver.
func (d driver) Inventory(context.Context) ([]string, error) { return d.podFolders() }

// judge applies the outcome of a mount. Each volume has its own back-off, and may have to be mounted again at a certain time.
func judge(now time.Time, op operation, v verdict) verdict {
	switch {
	case op.Desired == nil:
		return v
	case v.Err != nil:
		v.Actual = op.Actual.after(mountOutcome{volumes: []volumeOutcome{{err: v.Err}}}, now)
	case v.Actual.last != nil:
		v.Actual = v.Actual.after(*v.Actual.last, now)
	}
	return verdict{Actual: v.Actual, Err: v.Actual.err(), Again: v.Actual.next()}
}

// joins reports whether an operation of an earlier life of the actor does all of my operation's work, and no more.
func joins(underWay, mine operation) bool {
	if underWay.Remove || mine.Remove {
		return underWay.Remove && mine.Remove
	}
	return kinds.SameVolumes(underWay.Desired, mine.Desired) && !underWay.Actual.known() && !mine.Actual.known()
}

// The lanes of operations. An API server that does not answer blocks only the operations that request tokens from it.
const (
	onDisk  = iota // no requests to others
	asking         // mounts that request a token from the API server
	renewal        // the same, for pods with all volumes mounted and only tokens to renew
	storing        // calls of CSI drivers or file servers; each has its own limit, so that none blocks the others
)

func (d driver) lane(op operation) int {
	changed := op.Actual.version != d.node.VersionOf(op.Desired)
	switch {
	case d.storage.Has(op.Key), usesServers(op.Desired), op.Actual.isServed():
		return storing
	case op.Desired == nil, !asksForTokens(op.Desired, d.awake(op.Actual).due(op.Desired, op.Began, changed)):
		return onDisk
	case op.Actual.known() && op.Actual.err() == nil:
		return renewal
	default:
		return asking
	}
}

// lane is the driver's lane, except for unmounts that may wait for a hung server: the retry of a failed removal, e.g. of a
// replaced kubelet's volume, and the first one after a restart of a pod with mounts. They use the lane without a limit.
func (a *actor) lane(d driver) func(operation) int {
	return func(op operation) int {
		_, failed := a.held.remains[op.Key]
		if op.Desired == nil && (failed || !op.Actual.known() && a.served.mayHave(op.Key)) {
			return storing
		}
		return d.lane(op)
	}
}

// share returns the group that shares the places of a lane: a namespace. The namespace of a removal may be unknown.
func share(op operation) []string {
	if op.Desired == nil {
		return []string{"removals"}
	}
	return []string{"namespace " + op.Desired.Namespace}
}

// plugins returns the plugins of all kinds of volumes.
func plugins(s *persistent.Storage) []kinds.Plugin {
	return append(kinds.All(), persistent.Plugins(s)...)
}

// asksForTokens reports whether any of the named volumes of a pod has a token. Without names it checks all volumes in use.
func asksForTokens(pod *v1.Pod, only []string) bool {
	return slices.ContainsFunc(podspec.UsedVolumes(pod), func(v *v1.Volume) bool {
		return (len(only) == 0 || slices.Contains(only, v.Name)) && kinds.Holds(v, kinds.OfTokens)
	})
}

// mayHang reports whether a volume is mounted by a driver, or is on a file system that may be a server's.
func mayHang(v *v1.Volume) bool {
	return persistent.Handles(v) || (kinds.HostPath{}).Checks(v) || v.NFS != nil
}

func usesServers(pod *v1.Pod) bool {
	return pod != nil && slices.ContainsFunc(podspec.UsedVolumes(pod), mayHang)
}
