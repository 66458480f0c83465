package volumes

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// forgottenIn is how many whole wishes in a row must leave a pod out before what it asked for counts no more.
const forgottenIn = 2

// podState is what is known of one pod. It is a value: nothing in it is changed in place.
type podState struct {
	phase phase
	// turn is the operation or timer whose end is awaited; what comes of another is stale.
	turn uint64

	pod      *v1.Pod              // as last asked for
	opPod    *v1.Pod              // as the mount under way has it
	opOnly   []string             // the volumes that the mount under way is of; empty: all
	paths    map[string]string    // of what is mounted
	troubles map[string]trouble   // by volume
	renew    map[string]time.Time // when a volume is to be mounted again, of those that are

	version   uint64 // of the ConfigMaps and Secrets that it may read
	opVersion uint64 // as it was when the last mount began

	remove   bool // the folder must go too
	opRemove bool // the unmount under way removes the folder
	asked    bool // the pod awaits VolumesUnmounted; otherwise its folder was found left behind

	missing int // whole wishes of pods in a row without this pod, since it last asked
}

// step decides: pod and event in, pod and effects out. turn is a number never given before, for what this step begins.
func (p podState) step(uid string, ev any, now time.Time, turn uint64) (podState, []any) {
	switch e := ev.(type) {
	case mountAsked:
		p.missing = 0
		return p.onMountAsked(uid, e.pod, turn)
	case unmountAsked:
		p.asked = true
		return p.onUnwanted(e.remove, turn)
	case leftBehind:
		switch p.phase {
		case absent, mounted, backingOff, refused:
			return p.onUnwanted(true, turn)
		default: // its pod is still spoken for
		}
	case mountEnded:
		if e.turn == p.turn {
			return p.onMountEnded(uid, e.mountOutcome, now, turn)
		}
	case verifyEnded:
		if e.turn == p.turn && p.phase == verifying {
			return p.onVerifyEnded(uid, e.ok, now, turn)
		}
	case unmountEnded:
		if e.turn == p.turn {
			return p.onUnmountEnded(uid, e.unmountOutcome, turn)
		}
	case objectsChanged:
		return p.onObjectsChanged(now, turn)
	case retryDue:
		if e.turn == p.turn && (p.phase == backingOff || p.phase == mounted) {
			return p.mount(turn, p.due(now)...)
		}
	}
	return p, nil
}

func (p podState) onMountAsked(uid string, pod *v1.Pod, turn uint64) (podState, []any) {
	same := p.pod != nil && sameWish(p.pod, pod)
	p.pod, p.remove, p.asked = pod, false, false
	if !same {
		p.paths, p.troubles, p.renew = nil, nil, nil
		p.opPod = nil // what is under way was of some of the volumes, perhaps; it is done anew
	}
	switch p.phase {
	case mounting, remounting: // the answer comes when it ends
		return p, nil
	case abandoning:
		return p.to(mounting), nil
	case unmounting:
		return p.to(remounting), nil
	case mounted:
		if same {
			p = p.to(verifying)
			p.turn = turn
			return p, []any{beginVerify{pod}}
		}
	case verifying:
		if same {
			return p, nil
		}
	case backingOff, refused:
		if same {
			return p, p.complaints(uid)
		}
	case absent:
	}
	return p.mount(turn)
}

// onUnwanted makes the way to nothing, whatever is under way.
func (p podState) onUnwanted(remove bool, turn uint64) (podState, []any) {
	p.remove = p.remove || remove
	switch p.phase {
	case mounting:
		return p.to(abandoning), nil
	case remounting:
		return p.to(unmounting), nil
	case abandoning, unmounting:
		return p, nil
	case absent, mounted, verifying, backingOff, refused:
	}
	return p.unmount(turn)
}

func (p podState) onMountEnded(uid string, out mountOutcome, now time.Time, turn uint64) (podState, []any) {
	switch {
	case p.phase == abandoning:
		return p.unmount(turn)
	case p.phase != mounting:
		return p, nil
	case p.opPod == nil || !sameWish(p.pod, p.opPod):
		return p.mountAgain(turn)
	}
	p = p.after(out, now)
	if len(p.troubles) == 0 {
		p = p.to(mounted)
		effects := []any{tell{messages.VolumesMounted{UID: uid, Paths: p.paths}}}
		if !p.stale() {
			return p.renewing(effects, now, turn)
		}
		next, more := p.mount(turn, p.due(now)...)
		return next, append(effects, more...)
	}
	effects := p.complaints(uid)
	if failed := p.sorted(out.failures); len(failed) > 0 {
		effects = append(effects, noteFailures{failed})
	}
	next, again := p.nextRetry()
	if !again {
		return p.to(refused), effects
	}
	p = p.to(backingOff)
	p.turn = turn
	return p, append(effects, retryAfter{max(next.Sub(now), 0)})
}

// stale says whether the volumes may hold older ConfigMaps or Secrets than there are.
func (p podState) stale() bool {
	return p.opVersion != p.version && p.pod != nil && usesObjects(p.pod)
}

// onObjectsChanged has those volumes written again, which changes nothing where they hold what they should. A mount that is
// under way looks when it ends.
func (p podState) onObjectsChanged(now time.Time, turn uint64) (podState, []any) {
	if !p.stale() {
		return p, nil
	}
	switch p.phase {
	case mounted, backingOff:
		return p.mount(turn, p.due(now)...)
	case verifying:
		return p.mount(turn)
	case absent, mounting, refused, abandoning, unmounting, remounting:
	}
	return p, nil
}

func (p podState) onVerifyEnded(uid string, ok bool, now time.Time, turn uint64) (podState, []any) {
	if !ok {
		return p.mount(turn)
	}
	return p.to(mounted).renewing([]any{tell{messages.VolumesMounted{UID: uid, Paths: p.paths}}}, now, turn)
}

func (p podState) onUnmountEnded(uid string, out unmountOutcome, turn uint64) (podState, []any) {
	switch {
	case p.phase == remounting:
		return p.mount(turn)
	case p.phase != unmounting:
		return p, nil
	case p.remove && !p.opRemove:
		return p.unmountAgain(turn)
	}
	effects := []any{noteLeft{out.left}}
	if p.asked {
		effects = append(effects, tell{messages.VolumesUnmounted{UID: uid, Removed: p.opRemove, Left: out.left}})
	}
	p.to(absent)
	return podState{}, effects
}

// mount mounts some volumes; all of them where none is named.
func (p podState) mount(turn uint64, only ...string) (podState, []any) {
	return p.to(mounting).mountAgain(turn, only...)
}

func (p podState) mountAgain(turn uint64, only ...string) (podState, []any) {
	p.turn, p.opPod, p.opOnly, p.opVersion = turn, p.pod, only, p.version
	return p, []any{beginMount{p.pod, only}}
}

func (p podState) unmount(turn uint64) (podState, []any) { return p.to(unmounting).unmountAgain(turn) }

func (p podState) unmountAgain(turn uint64) (podState, []any) {
	p.turn, p.opRemove = turn, p.remove
	return p, []any{beginUnmount{p.remove}}
}
