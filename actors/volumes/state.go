package volumes

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/suspend"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// state is the state of the volumes of one pod. It is a value: nothing in it is changed in place.
type state struct {
	volumes map[string]volumeState // nil: unknown; the entry without a name is a failure of the pod's folder
	version uint64                 // of the pod's ConfigMaps and Secrets at the last mount
	last    *mountOutcome          // the outcome of the latest mount, to be judged
	events  []messages.RecordEvent // of the last mount
	slept   time.Duration          // suspend.Total, when the volumes were last looked at
}

// volumeState is the state of one volume. Each volume has its own back-off.
type volumeState struct {
	path string
	// mounts is set if something is mounted at the path, which is in the pod's folder.
	mounts bool
	device bool      // it is a block device
	group  *int64    // a supplemental group of the containers; nil: none
	err    error     // of the last mount
	fails  int       // consecutive failures
	quiet  bool      // the error is normal, or was reported before
	since  time.Time // the first attempt since the last success
	// again is the time of the next mount, to renew the volume or to retry; zero: none.
	again time.Time
	slept time.Duration // the suspensions before that time was computed
}

func (s state) known() bool { return s.volumes != nil }

// paths returns the paths of the mounted volumes by name.
func (s state) paths() map[string]string {
	out := map[string]string{}
	for name, v := range s.volumes {
		if v.err == nil {
			out[name] = v.path
		}
	}
	return out
}

// mounts returns the names of the volumes with something mounted at their path; nil: none.
func (s state) mounts() (out map[string]bool) {
	for name, v := range s.volumes {
		if v.mounts && v.err == nil {
			if out == nil {
				out = map[string]bool{}
			}
			out[name] = true
		}
	}
	return out
}

// groups returns the supplemental groups of the mounted volumes.
func (s state) groups() (out []int64) {
	for _, v := range s.volumes {
		if v.group != nil && v.err == nil {
			out = append(out, *v.group)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isServed reports whether a volume is mounted from a server, which may hang when the volume is unmounted.
func (s state) isServed() bool {
	for _, v := range s.volumes {
		if v.mounts && strings.Contains(v.path, "/"+kinds.NFSFolder("")+"/") {
			return true
		}
	}
	return false
}

// after applies the outcome of a mount to the volumes that it was for.
func (s state) after(out mountOutcome, now time.Time) state {
	next := state{volumes: map[string]volumeState{}, version: s.version, slept: s.slept}
	if len(out.only) > 0 {
		maps.Copy(next.volumes, s.volumes)
		for _, name := range append(slices.Clone(out.only), "") {
			delete(next.volumes, name)
		}
	}
	for _, o := range out.volumes {
		v := s.volumes[o.name].after(o, now)
		v.slept = s.slept
		next.volumes[o.name] = v
		next.events = append(next.events, o.events...)
	}
	return next
}

// after returns the state of a volume after a mount.
func (v volumeState) after(o volumeOutcome, now time.Time) volumeState {
	next := volumeState{path: o.path, mounts: o.mounts, device: o.device, group: o.group, err: o.err,
		again: o.renew, since: now}
	if o.err == nil {
		return next
	}
	if next.fails = v.fails + 1; v.err != nil {
		next.since = v.since
	}
	w, waits := kinds.AsWait(o.err)
	next.quiet = w.Normal || waits && v.err != nil && !kinds.IsNormalWait(v.err) && v.err.Error() == o.err.Error()
	policy := kinds.Retry
	if waits && w.Over == nil {
		policy = waitRetry
	}
	switch at := now.Add(policy.After(next.fails, 0)); {
	case kinds.IsPermanent(o.err):
		next.again = time.Time{}
	case !waits || w.Over == nil && (next.again.IsZero() || at.Before(next.again)):
		next.again = at
	case !w.Normal:
		next.again = now.Add(kinds.Retry.Max)
	}
	return next
}

// waitRetry is the back-off of waits whose end cannot be observed.
var waitRetry = backoff.Policy{First: 500 * time.Millisecond, Max: 5 * time.Second}

// mayGoOn reports whether a volume waits for others and the wait may be over.
func (s state) mayGoOn() bool {
	for _, v := range s.volumes {
		if kinds.MayBeOver(v.err) {
			return true
		}
	}
	return false
}

// due returns the volumes of a pod to mount now: never tried, due for a retry or renewal, no longer waiting, or with changed
// ConfigMaps or Secrets.
func (s state) due(pod *v1.Pod, now time.Time, changed bool) []string {
	if !s.known() {
		return nil // all of them
	}
	var out []string
	for _, v := range podspec.UsedVolumes(pod) {
		is, tried := s.volumes[v.Name]
		again := is.time(s.slept)
		due := !again.IsZero() && !again.After(now)
		if !tried || due || kinds.MayBeOver(is.err) || changed && kinds.Holds(v, kinds.OfObjects) {
			out = append(out, v.Name)
		}
	}
	return out
}

// next returns the time of the next retry or renewal; zero: never.
func (s state) next() (next time.Time) {
	for _, v := range s.volumes {
		if again := v.time(s.slept); !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	return next
}

// time returns the time of the next mount, earlier by the suspensions since it was computed: the monotonic clock stopped.
func (v volumeState) time(slept time.Duration) time.Time {
	if later := slept - v.slept; later >= suspend.Short && !v.again.IsZero() {
		return v.again.Add(-later)
	}
	return v.again
}

// err joins the failures of all volumes. It returns nil if no volume failed, even if some wait.
func (s state) err() error {
	var texts []string
	for _, m := range s.failed("") {
		if !kinds.IsNormalWait(s.volumes[m.Volume].err) {
			texts = append(texts, m.Reason.Message)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// failed returns the message to the pod for each volume that is not mounted: first volumes in a normal wait, then failures.
func (s state) failed(uid string) []messages.VolumesFailed {
	var waiting, out []messages.VolumesFailed
	for _, name := range slices.Sorted(maps.Keys(s.volumes)) {
		v := s.volumes[name]
		if v.err == nil {
			continue
		}
		text := messages.OneLine(v.err)
		if name != "" {
			text = "volume \"" + name + "\": " + text
		}
		m := messages.VolumesFailed{UID: uid, Volume: name, Quiet: v.quiet, Reason: messages.Reason{
			Code: messages.ReasonFailedMount, Message: text, Permanent: kinds.IsPermanent(v.err), RetryAt: v.again,
			Tries: v.fails, Cause: messages.CauseOf(v.err),
		}}
		// As in the kubelet, a volume that another pod has is not mounted, of either mode.
		m.Device = v.device && m.Reason.Cause.Code != messages.CauseVolumeInUse
		if _, changes := errors.AsType[changeError](v.err); changes {
			m.Reason.Code = messages.ReasonPermissionChange
		}
		if kinds.IsNormalWait(v.err) {
			m.Reason.RetryAt, m.Reason.Tries = time.Time{}, 0
			waiting = append(waiting, m)
		} else {
			out = append(out, m)
		}
	}
	return append(waiting, out...)
}
