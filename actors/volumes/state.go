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
	err   error // why it could not be mounted
	fails int   // in a row
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
		v := volumeState{path: o.path, err: o.err, again: o.renew}
		if v.err != nil {
			policy := retry
			if isWait(v.err) {
				policy = waitRetry
			}
			v.fails = s.volumes[o.name].fails + 1
			if v.again = now.Add(policy.After(v.fails, 0)); kinds.IsPermanent(v.err) {
				v.again = time.Time{}
			}
		}
		next.volumes[o.name] = v
		next.events = append(next.events, o.events...)
	}
	return next
}

// due lists the volumes of a pod that are to be mounted now: those whose back-off is over, those never tried, those
// to be renewed, and those that hold ConfigMaps or Secrets where these have changed.
func (s state) due(pod *v1.Pod, now time.Time, changed bool) []string {
	if !s.known() {
		return nil // all of them
	}
	var out []string
	for _, v := range podspec.UsedVolumes(pod) {
		is, tried := s.volumes[v.Name]
		if !tried || !is.again.IsZero() && !is.again.After(now) || changed && kinds.Holds(v, kinds.OfObjects) {
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

// err is what is wrong with all volumes together; nil: nothing is.
func (s state) err() error {
	var texts []string
	for _, m := range s.failed("") {
		texts = append(texts, m.Reason.Message)
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// failed is what the pod is told of each volume that is not mounted.
func (s state) failed(uid string) []messages.VolumesFailed {
	var out []messages.VolumesFailed
	for _, name := range slices.Sorted(maps.Keys(s.volumes)) {
		v := s.volumes[name]
		if v.err == nil {
			continue
		}
		cause := messages.OneLine(v.err)
		text := cause
		if name != "" {
			text = "volume \"" + name + "\": " + text
		}
		out = append(out, messages.VolumesFailed{UID: uid, Volume: name, Reason: messages.Reason{
			Code: messages.ReasonFailedMount, Message: text, Permanent: kinds.IsPermanent(v.err), RetryAt: v.again,
			Tries: v.fails, Cause: cause,
		}})
	}
	return out
}
