package volumes

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/messages"
)

const (
	// forgottenIn is how many whole wishes in a row must leave a pod out before what it asked for counts no more.
	forgottenIn = 2
	// The back-off is the kubelet's for volumes: retryFirst, doubling to retryCap.
	retryFirst = 500 * time.Millisecond
	retryCap   = 2*time.Minute + 2*time.Second
)

// failure is why one volume could not be mounted. The volume is empty when it is about the pod's folder.
type failure struct {
	volume, message string
	permanent       bool
}

// podState is what is known of one pod. It is a value: nothing in it is changed in place.
type podState struct {
	phase phase
	// turn is the operation or timer whose end is awaited; what comes of another is stale.
	turn uint64

	pod      *v1.Pod // as last asked for
	opPod    *v1.Pod // as the mount under way has it
	paths    map[string]string
	failures []failure
	fails    int // failed mounts in a row
	retryAt  time.Time

	version   uint64 // of the ConfigMaps and Secrets, as last heard
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
			return p.onVerifyEnded(uid, e.ok, turn)
		}
	case unmountEnded:
		if e.turn == p.turn {
			return p.onUnmountEnded(uid, e.unmountOutcome, turn)
		}
	case objectsChanged:
		return p.onObjectsChanged(turn)
	case retryDue:
		if e.turn == p.turn && p.phase == backingOff {
			return p.mount(turn)
		}
	}
	return p, nil
}

func (p podState) onMountAsked(uid string, pod *v1.Pod, turn uint64) (podState, []any) {
	same := p.pod != nil && sameWish(p.pod, pod)
	p.pod, p.remove, p.asked = pod, false, false
	if !same {
		p.fails = 0
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
	case !sameWish(p.pod, p.opPod):
		return p.mountAgain(turn)
	case len(out.failures) == 0:
		p = p.to(mounted)
		p.paths, p.failures, p.fails, p.retryAt = out.paths, nil, 0, time.Time{}
		effects := []any{tell{messages.VolumesMounted{UID: uid, Paths: p.paths}}}
		if !p.stale() {
			return p, effects
		}
		next, more := p.mount(turn)
		return next, append(effects, more...)
	}
	p.failures, p.paths = out.failures, nil
	for _, f := range out.failures {
		if f.permanent {
			p = p.to(refused)
			p.retryAt = time.Time{}
			return p, append(p.complaints(uid), noteFailures{p.failures, p.retryAt})
		}
	}
	p = p.to(backingOff)
	d := retryDelay(p.fails)
	p.fails++
	p.turn, p.retryAt = turn, now.Add(d)
	return p, append(p.complaints(uid), noteFailures{p.failures, p.retryAt}, retryAfter{d})
}

// stale says whether the volumes may hold older ConfigMaps or Secrets than there are.
func (p podState) stale() bool {
	return p.opVersion != p.version && p.pod != nil && usesObjects(p.pod)
}

// onObjectsChanged has the volumes written again, which changes nothing where they hold what they should. A mount that is
// under way looks when it ends.
func (p podState) onObjectsChanged(turn uint64) (podState, []any) {
	if !p.stale() {
		return p, nil
	}
	switch p.phase {
	case mounted, verifying, backingOff:
		return p.mount(turn)
	case absent, mounting, refused, abandoning, unmounting, remounting:
	}
	return p, nil
}

func (p podState) onVerifyEnded(uid string, ok bool, turn uint64) (podState, []any) {
	if !ok {
		return p.mount(turn)
	}
	return p.to(mounted), []any{tell{messages.VolumesMounted{UID: uid, Paths: p.paths}}}
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

func (p podState) mount(turn uint64) (podState, []any) { return p.to(mounting).mountAgain(turn) }

func (p podState) mountAgain(turn uint64) (podState, []any) {
	p.turn, p.opPod, p.opVersion = turn, p.pod, p.version
	return p, []any{beginMount{p.pod}}
}

func (p podState) unmount(turn uint64) (podState, []any) { return p.to(unmounting).unmountAgain(turn) }

func (p podState) unmountAgain(turn uint64) (podState, []any) {
	p.turn, p.opRemove = turn, p.remove
	return p, []any{beginUnmount{p.remove}}
}

// complaints tell the pod every failure of the last try.
func (p podState) complaints(uid string) []any {
	var out []any
	for _, f := range p.failures {
		text := f.message
		if f.volume != "" {
			text = "volume \"" + f.volume + "\": " + text
		}
		out = append(out, tell{messages.VolumesFailed{UID: uid, Volume: f.volume, Reason: messages.Reason{
			Code: messages.ReasonFailedMount, Message: text, Permanent: f.permanent, RetryAt: p.retryAt,
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

// sameWish says whether two pods want the same volumes with the same in them. A static pod can keep its UID and change.
func sameWish(a, b *v1.Pod) bool {
	return a == b || equality.Semantic.DeepEqual(used(a), used(b)) && equality.Semantic.DeepEqual(fsGroupOf(a), fsGroupOf(b)) &&
		(!tellsOfPod(a) || sameTold(a, b))
}

// sameTold says whether the downward API says the same of two pods.
func sameTold(a, b *v1.Pod) bool {
	same := equality.Semantic.DeepEqual
	if !same(a.Labels, b.Labels) || !same(a.Annotations, b.Annotations) || !same(a.Spec.Resources, b.Spec.Resources) ||
		a.Name != b.Name || a.Namespace != b.Namespace {
		return false
	}
	resources := func(list []v1.Container) map[string]v1.ResourceRequirements {
		out := map[string]v1.ResourceRequirements{}
		for i := range list {
			out[list[i].Name] = list[i].Resources
		}
		return out
	}
	return same(resources(a.Spec.Containers), resources(b.Spec.Containers)) &&
		same(resources(a.Spec.InitContainers), resources(b.Spec.InitContainers))
}

func fsGroupOf(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}
