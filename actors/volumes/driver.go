package volumes

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
)

// What the reconciler holds for each pod, by UID: the pod whose volumes are desired, nil where none are and the
// folder stays; and what is known of its volumes.
type (
	operation = reconcile.Operation[*v1.Pod, state]
	verdict   = reconcile.Verdict[state]
	report    = reconcile.Report[*v1.Pod, state]
)

// driver mounts and unmounts the volumes of pods.
type driver struct{ disk }

// Ensure implements reconcile.Driver. Of volumes that are known it mounts those that are due; where none is, it looks
// whether all are still there.
func (d driver) Ensure(ctx context.Context, op operation) (state, error) {
	if op.Desired == nil {
		return state{}, ended(d.unmountPod(ctx, op.Key, false))
	}
	s := op.Actual
	s.events = nil // they were told
	s.version = d.node.Objects.VersionOf(op.Desired)
	only := s.due(op.Desired, op.Began, op.Actual.version != s.version)
	if s.volumes[""].err != nil {
		only = nil // the folder failed, and which volumes were to be mounted in it is not known any more
	} else if s.known() && len(only) == 0 && d.stillMounted(op.Key, op.Desired, s) {
		return s, nil
	}
	out := d.mountPod(ctx, op.Key, op.Desired, only...)
	for _, o := range out.volumes {
		if was, tried := s.volumes[o.name]; o.err == nil && (!tried || was.err != nil) {
			metrics.Mounted(o.plugin, cmp.Or(was.since, op.Began))
		}
	}
	s.last = &out
	return s, nil
}

// Remove implements reconcile.Driver: nothing of the pod stays mounted, and its folder goes.
func (d driver) Remove(ctx context.Context, uid string) error {
	return ended(d.unmountPod(ctx, uid, true))
}

// removalError is the error of a removal that has ended, as opposed to one that goes on.
type removalError struct{ error }

// Unwrap implements the interface of errors.Is.
func (e removalError) Unwrap() error { return e.error }

func ended(err error) error {
	if err != nil {
		err = removalError{err}
	}
	return err
}

// Inventory implements reconcile.Driver.
func (d driver) Inventory(context.Context) ([]string, error) { return d.podFolders() }

// judge takes what came of mounting: each volume has a back-off of its own, and may have to be mounted again at a time.
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

// joins says that an operation of an earlier life of the actor does what mine is to do: all of it, or nothing.
func joins(underWay, mine operation) bool {
	if underWay.Remove || mine.Remove {
		return underWay.Remove && mine.Remove
	}
	return kinds.SameVolumes(underWay.Desired, mine.Desired) && !underWay.Actual.known() && !mine.Actual.known()
}

// The lanes of operations: an API server that does not answer keeps those that ask it, and nobody else.
const (
	onDisk  = iota // whatever asks nobody
	asking         // mounts that need a token of the API server
	renewal        // the same, of pods that have all they need and whose tokens only become old
	storing        // whatever a driver or server of others does; the bound is each one's own, so that none holds up others
)

func (d driver) lane(op operation) int {
	changed := op.Actual.version != d.node.Objects.VersionOf(op.Desired)
	switch {
	case d.storage.Has(op.Key), d.storage != nil && usesStorage(op.Desired), checksHostPath(op.Desired):
		return storing
	case op.Desired == nil, !asksForTokens(op.Desired, op.Actual.due(op.Desired, op.Began, changed)):
		return onDisk
	case op.Actual.known() && op.Actual.err() == nil:
		return renewal
	default:
		return asking
	}
}

// lane adds to the driver's lanes that a removal that failed before is tried again in the one without a bound: it may wait for
// a hung server, as one of a replaced kubelet's volumes.
func (a *actor) lane(d driver) func(operation) int {
	return func(op operation) int {
		if _, failed := a.held.remains[op.Key]; failed && op.Desired == nil {
			return storing
		}
		return d.lane(op)
	}
}

// share has operations share the places of a lane by namespace. That of a removal may not be known.
func share(op operation) []string {
	if op.Desired == nil {
		return []string{"removals"}
	}
	return []string{"namespace " + op.Desired.Namespace}
}

// plugins is the list of all kinds.
func plugins(s *persistent.Storage) []kinds.Plugin {
	return append(kinds.All(), persistent.Plugins(s)...)
}

// asksForTokens says that one of these volumes of a pod, or of all that it uses where none is named, has a token in it.
func asksForTokens(pod *v1.Pod, only []string) bool {
	return slices.ContainsFunc(podspec.UsedVolumes(pod), func(v *v1.Volume) bool {
		return (len(only) == 0 || slices.Contains(only, v.Name)) && kinds.Holds(v, kinds.OfTokens)
	})
}

func checksHostPath(pod *v1.Pod) bool {
	return pod != nil && slices.ContainsFunc(podspec.UsedVolumes(pod), kinds.HostPath{}.Checks)
}

func usesStorage(pod *v1.Pod) bool {
	return pod != nil && slices.ContainsFunc(podspec.UsedVolumes(pod), persistent.Handles)
}
