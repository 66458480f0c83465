package volumes

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
)

// state is what is known of the volumes of one pod. It is a value: nothing in it is changed in place.
type state struct {
	paths    map[string]string      // of what is mounted; nil: nothing is known
	troubles map[string]trouble     // by volume
	renew    map[string]time.Time   // when a volume is to be mounted again, of those that are
	version  uint64                 // of the ConfigMaps and Secrets that it may read, when they were mounted last
	last     *mountOutcome          // what has just come of mounting
	events   []messages.RecordEvent // of the last mount
}

// failure is why one volume could not be mounted. The volume is empty when it is about the pod's folder.
type failure struct {
	volume, message string
	permanent       bool
	waits           bool // for what others have to do first
}

// trouble is one volume that could not be mounted: each has a back-off of its own.
type trouble struct {
	failure
	fails   int       // in a row
	retryAt time.Time // zero: it is not tried again by itself
}

func (s state) known() bool { return s.paths != nil }

// after takes what came of a mount: of the volumes that it was of, and of no others.
func (s state) after(out mountOutcome, now time.Time) state {
	next := state{paths: map[string]string{}, troubles: map[string]trouble{}, renew: map[string]time.Time{}, version: s.version,
		events: out.events}
	if len(out.only) > 0 {
		maps.Copy(next.paths, s.paths)
		maps.Copy(next.troubles, s.troubles)
		maps.Copy(next.renew, s.renew)
		for _, volume := range append(slices.Clone(out.only), "") {
			delete(next.troubles, volume)
			delete(next.renew, volume)
		}
	}
	maps.Copy(next.renew, out.renew)
	maps.Copy(next.paths, out.paths)
	for _, f := range out.failures {
		t := trouble{failure: f, fails: s.troubles[f.volume].fails + 1}
		if !f.permanent {
			policy := retry
			if f.waits {
				policy = waitRetry
			}
			t.retryAt = now.Add(policy.After(t.fails, 0))
		}
		next.troubles[f.volume] = t
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
		t, troubled := s.troubles[v.Name]
		renew := s.renew[v.Name]
		switch {
		case troubled && !t.retryAt.IsZero() && !t.retryAt.After(now), !troubled && s.paths[v.Name] == "",
			!troubled && !renew.IsZero() && !renew.After(now), changed && holds(v, ofObjects):
			out = append(out, v.Name)
		}
	}
	return out
}

// next is when a volume is tried again, or renewed, next; zero: never.
func (s state) next() (next time.Time) {
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, t := range s.troubles {
		sooner(t.retryAt)
	}
	for _, at := range s.renew {
		sooner(at)
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
	for _, volume := range slices.Sorted(maps.Keys(s.troubles)) {
		t := s.troubles[volume]
		text := t.message
		if volume != "" {
			text = "volume \"" + volume + "\": " + text
		}
		out = append(out, messages.VolumesFailed{UID: uid, Volume: volume, Reason: messages.Reason{
			Code: messages.ReasonFailedMount, Message: text, Permanent: t.permanent, RetryAt: t.retryAt,
			Tries: t.fails, Cause: t.message,
		}})
	}
	return out
}
