package volumes

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// The back-off is the kubelet's for volumes: retryFirst, doubling to retryCap.
const (
	retryFirst = 500 * time.Millisecond
	retryCap   = 2*time.Minute + 2*time.Second
)

// failure is why one volume could not be mounted. The volume is empty when it is about the pod's folder.
type failure struct {
	volume, message string
	permanent       bool
}

// trouble is one volume that could not be mounted: each has a back-off of its own.
type trouble struct {
	failure
	fails   int       // in a row
	retryAt time.Time // zero: it is not tried again by itself
}

// after takes what came of a mount: of the volumes that it was of, and of no others.
func (p podState) after(out mountOutcome, now time.Time) podState {
	paths, troubles := map[string]string{}, map[string]trouble{}
	if len(p.opOnly) > 0 {
		maps.Copy(paths, p.paths)
		for volume, t := range p.troubles {
			if volume != "" && !slices.Contains(p.opOnly, volume) {
				troubles[volume] = t
			}
		}
	}
	renew := map[string]time.Time{}
	if len(p.opOnly) > 0 {
		for volume, at := range p.renew {
			if !slices.Contains(p.opOnly, volume) {
				renew[volume] = at
			}
		}
	}
	maps.Copy(renew, out.renew)
	maps.Copy(paths, out.paths)
	for _, f := range out.failures {
		fails := p.troubles[f.volume].fails
		t := trouble{failure: f, fails: fails + 1}
		if !f.permanent {
			t.retryAt = now.Add(retryDelay(fails))
		}
		troubles[f.volume] = t
	}
	p.paths, p.troubles, p.renew = paths, troubles, renew
	return p
}

// due lists the volumes that are to be mounted now: those whose back-off is over, those never tried, and those that hold
// ConfigMaps or Secrets where these have changed.
func (p podState) due(now time.Time) []string {
	var out []string
	for _, v := range used(p.pod) {
		t, troubled := p.troubles[v.Name]
		switch {
		case troubled && !t.retryAt.IsZero() && !t.retryAt.After(now),
			!troubled && p.paths[v.Name] == "",
			!troubled && !p.renew[v.Name].IsZero() && !p.renew[v.Name].After(now),
			p.stale() && holdsObjects(v):
			out = append(out, v.Name)
		}
	}
	return out
}

// nextRetry is when a volume is tried again, or renewed, next; there may be no such time.
func (p podState) nextRetry() (next time.Time, again bool) {
	for _, t := range p.troubles {
		if !t.retryAt.IsZero() && (!again || t.retryAt.Before(next)) {
			next, again = t.retryAt, true
		}
	}
	if at, renews := p.nextRenewal(); renews && (!again || at.Before(next)) {
		return at, true
	}
	return next, again
}

// nextRenewal is when a mounted volume is to be mounted again next.
func (p podState) nextRenewal() (next time.Time, renews bool) {
	for _, at := range p.renew {
		if !renews || at.Before(next) {
			next, renews = at, true
		}
	}
	return next, renews
}

// renewing has volumes that are mounted renewed when it is time.
func (p podState) renewing(effects []any, now time.Time, turn uint64) (podState, []any) {
	if next, renews := p.nextRenewal(); renews {
		p.turn = turn
		effects = append(effects, retryAfter{max(next.Sub(now), 0)})
	}
	return p, effects
}

// sorted are the troubles that these failures made, by volume.
func (p podState) sorted(failures []failure) []trouble {
	var out []trouble
	for _, f := range failures {
		out = append(out, p.troubles[f.volume])
	}
	slices.SortFunc(out, func(a, b trouble) int { return strings.Compare(a.volume, b.volume) })
	return out
}

// complaints tell the pod every volume that is not mounted.
func (p podState) complaints(uid string) []any {
	var out []any
	for _, volume := range slices.Sorted(maps.Keys(p.troubles)) {
		t := p.troubles[volume]
		text := t.message
		if volume != "" {
			text = "volume \"" + volume + "\": " + text
		}
		out = append(out, tell{messages.VolumesFailed{UID: uid, Volume: volume, Reason: messages.Reason{
			Code: messages.ReasonFailedMount, Message: text, Permanent: t.permanent, RetryAt: t.retryAt,
		}}})
	}
	return out
}

// retryDelay is the pause after a mount that failed when this many had failed just before it.
func retryDelay(fails int) time.Duration {
	if fails > 8 { // 2^8 half seconds are beyond the cap
		return retryCap
	}
	return min(retryFirst<<fails, retryCap)
}
