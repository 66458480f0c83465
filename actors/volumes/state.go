package volumes

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// state is what is known of the volumes of one pod. It is a value: nothing in it is changed in place.
type state struct {
	volumes map[string]volumeState // nil: nothing is known; that without a name is the pod's folder, where it failed
	version uint64                 // of the ConfigMaps and Secrets that it may read, when they were mounted last
	last    *mountOutcome          // what has just come of mounting
	events  []messages.RecordEvent // of the last mount
}

// volumeState is what is known of one volume. Each has a back-off of its own.
type volumeState struct {
	path  string
	err   error     // why it could not be mounted
	fails int       // in a row
	quiet bool      // that is normal, or was reported before
	since time.Time // when it was mounted first since it last succeeded
	// again is when it is to be mounted again, to be renewed or since it failed; zero: not by itself.
	again time.Time
}

func (s state) known() bool { return s.volumes != nil }

// paths are the volumes that are mounted.
func (s state) paths() map[string]string {
	out := map[string]string{}
	for name, v := range s.volumes {
		if v.err == nil {
			out[name] = v.path
		}
	}
	return out
}

// after takes what came of a mount: of the volumes that it was of, and of no others.
func (s state) after(out mountOutcome, now time.Time) state {
	next := state{volumes: map[string]volumeState{}, version: s.version}
	if len(out.only) > 0 {
		maps.Copy(next.volumes, s.volumes)
		for _, name := range append(slices.Clone(out.only), "") {
			delete(next.volumes, name)
		}
	}
	for _, o := range out.volumes {
		next.volumes[o.name] = s.volumes[o.name].after(o, now)
		next.events = append(next.events, o.events...)
	}
	return next
}

// after returns the state of a volume after a mount.
func (v volumeState) after(o volumeOutcome, now time.Time) volumeState {
	next := volumeState{path: o.path, err: o.err, again: o.renew, since: now}
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

// waitRetry is between retries where the end of a wait cannot be observed.
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

// due lists the volumes of a pod to mount now: back-off or wait is over, never tried, to be renewed, or their ConfigMaps or
// Secrets have changed.
func (s state) due(pod *v1.Pod, now time.Time, changed bool) []string {
	if !s.known() {
		return nil // all of them
	}
	var out []string
	for _, v := range podspec.UsedVolumes(pod) {
		is, tried := s.volumes[v.Name]
		due := !is.again.IsZero() && !is.again.After(now)
		if !tried || due || kinds.MayBeOver(is.err) || changed && kinds.Holds(v, kinds.OfObjects) {
			out = append(out, v.Name)
		}
	}
	return out
}

// next is when a volume is tried again, or renewed, next; zero: never.
func (s state) next() (next time.Time) {
	for _, v := range s.volumes {
		if !v.again.IsZero() && (next.IsZero() || v.again.Before(next)) {
			next = v.again
		}
	}
	return next
}

// err joins the failures of all volumes; nil: none failed, and some may wait.
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

// failed returns the message to the pod for each volume that is not mounted, failures after those that wait normally.
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
