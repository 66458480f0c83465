package images

import (
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// handleLook handles the outcome of a look.
func (b *machine) handleLook(now time.Time, name string, o outcome) []effect {
	im := b.images[name]
	if im == nil || im.look.phase != busy {
		return b.flush(now)
	}
	im.look.phase = idle
	stale := im.stale
	im.stale = false
	switch o.result {
	case present:
		b.answerPresent(now, im, o)
	case absent:
		if stale {
			for _, n := range im.looking() {
				b.place(now, im, n)
			}
			break
		}
		b.missing(now, im)
	case failed, unreachable:
		o.cause.Text = o.msg
		o.msg = fmt.Sprintf("could not find out whether the image %q is there: %s", name, o.msg)
		im.look.fail(now, o)
		b.reportFailure(im.looking(), &im.look)
	}
	return b.flush(now)
}

// answerPresent answers the needs that do not require a pull and may use the image without one. It moves the others to the pull,
// except those with policy Never.
func (b *machine) answerPresent(now time.Time, im *image, o outcome) {
	refused, unsure := false, false
	for _, n := range append(im.looking(), im.needsWhere(func(n *need) bool { return n.stage == pulls })...) {
		insists := n.policy == v1.PullAlways && !n.pulled
		n.denied = !insists && !n.pulled && !b.policy.Allows(im.name, o.record, n.credentials.list)
		switch {
		case insists:
		case !n.denied:
			b.answer(now, im, n, messages.ImagePulled{Key: n.key, Image: n.image, Ref: o.ref, Pulled: n.pulled,
				Again: b.answers.gave(n.key, im.name)})
		case n.stage == looks && n.credentials.pod != nil &&
			o.record.Account(im.name, n.credentials.pod.Namespace, n.credentials.pod.Spec.ServiceAccountName): // of this account
			b.beginCheck(im, n, o)
			unsure = true
		case n.policy == v1.PullNever:
			refused = true
		case n.stage == looks:
			b.requestPull(now, im, n)
		}
	}
	switch {
	case refused:
		b.refuse(now, im, notYours, "")
	case !unsure:
		im.look.steps = 0
	}
}

// notYours is the reason why a pod with policy Never may not use a present image.
const notYours = "is on this node, but was pulled with credentials that this pod does not have"

// refuse sends the needs that must not pull the reason why they get no image, and adds note.
func (b *machine) refuse(now time.Time, im *image, why, note string) {
	im.look.fail(now, outcome{result: failed, code: messages.ReasonErrImageNeverPull,
		msg: fmt.Sprintf("the image %q %s, and the pull policy is Never", im.name, why) + note})
	b.reportFailure(im.looking(), &im.look)
}

// missing moves the needs that wait for a look to the pull, except those with policy Never.
func (b *machine) missing(now time.Time, im *image) {
	never := false
	for _, n := range im.looking() {
		if n.policy == v1.PullNever {
			never = true
			continue
		}
		n.pulled = false
		b.requestPull(now, im, n)
	}
	if never {
		b.refuse(now, im, "is not on this node", "")
	} else {
		im.look.steps = 0
	}
}

// pulledOutcome handles the outcome of a pull with these credentials.
func (b *machine) pulledOutcome(now time.Time, name, id string, o outcome) []effect {
	im := b.images[name]
	if im == nil || im.pulls[id] == nil || im.pulls[id].phase != busy {
		return b.flush(now)
	}
	p := im.pulls[id]
	switch p.slot {
	case slotHeld:
		b.queue.End(p.line)
	case slotLent:
		b.queue.EndLent(p.line)
	case slotGone:
	}
	if p.cut && o.result == failed {
		o = outcome{result: absent} // a need that arrived after the cut restarts it
	}
	p.phase, p.cut, p.slot, p.unwanted = idle, false, slotHeld, time.Time{}
	switch o.result {
	case present:
		p.steps = 0
		for _, n := range im.pulling(id) {
			b.answer(now, im, n, messages.ImagePulled{
				Key: n.key, Image: n.image, Ref: o.ref, Pulled: true, Size: o.size,
				Took: min(now.Sub(p.since), now.Sub(n.since)), Waited: now.Sub(n.since),
			})
		}
		im.stale = im.look.phase == busy
		// Needs that require no pull of their own look again, since the image is present now.
		for _, n := range im.needsWhere(func(n *need) bool { return n.policy != v1.PullAlways || n.pulled }) {
			if im.of(n).phase != busy {
				b.place(now, im, n)
			}
		}
	case absent:
		for _, n := range im.pulling(id) {
			b.place(now, im, n)
		}
	case failed, unreachable:
		o.cause.Text = o.msg
		o.msg = fmt.Sprintf("could not pull the image %q: %s", name, o.msg)
		p.fail(now, o)
		if o.result == failed {
			p.notice = now.Add(p.until.Sub(now) / 2)
		}
		b.reportFailure(im.pulling(id), &p.try)
	}
	return b.flush(now)
}

// answer ends a need.
func (b *machine) answer(now time.Time, im *image, n *need, m messages.ImagePulled) {
	b.send(n, m)
	delete(im.needs, n.key)
	b.answers[m.Key] = pullAnswer{im.name, m.Pulled, now}
	if now.Sub(b.pruned) > answersKept {
		b.pruned = now
		b.answers.prune(now)
	}
}

// tick handles the waits that have ended.
func (b *machine) tick(now time.Time) []effect {
	for _, im := range b.images {
		if im.look.phase == waiting && !im.look.until.After(now) {
			im.look.phase = idle
			for _, n := range im.looking() {
				b.place(now, im, n)
			}
		}
		for id, p := range im.pulls {
			b.tickPull(now, im, id, p)
		}
	}
	return b.flush(now)
}

func (b *machine) tickPull(now time.Time, im *image, id string, p *pull) {
	switch {
	case p.phase != waiting:
	case !p.until.After(now):
		p.phase = idle
		for _, n := range im.pulling(id) {
			b.place(now, im, n) // another pull may have completed in the meantime
		}
	case !p.notice.IsZero() && !p.notice.After(now):
		p.notice = time.Time{}
		for _, n := range im.pulling(id) {
			b.fail(n, &p.try, p.reason(n.image))
		}
	}
}

// due returns the time of the next tick; zero for none.
func (b *machine) due() time.Time {
	first := b.queue.TokenAt()
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	waits := false
	for _, im := range b.images {
		sooner(im.look.wakes())
		for _, p := range im.pulls {
			sooner(p.wakes())
			waits = waits || p.phase == queued
		}
	}
	if waits && b.queue.TokenAt().IsZero() {
		for _, at := range b.lends() {
			sooner(at)
		}
	}
	return first
}

// reportFailure sends the latest failure to the needs that wait for t. An unreachable runtime is reported once, since the look or
// pull is retried often.
func (b *machine) reportFailure(all []*need, t *try) {
	for _, n := range all {
		if t.last == unreachable && n.reported == t.failed.String() {
			continue
		}
		n.reported = t.failed.String()
		b.fail(n, t, t.failed)
	}
}

// answersKept is longer than the interval at which pods repeat a question.
const answersKept = 10 * time.Minute

// answers records recent answers. A pod that missed an answer asks again. With policy Always, that must not cause another pull.
type answers map[messages.ImageKey]pullAnswer

type pullAnswer struct {
	name   string
	pulled bool
	at     time.Time
}

// gave reports whether this question was answered.
func (a answers) gave(k messages.ImageKey, name string) bool {
	was, ok := a[k]
	return ok && was.name == name
}

// pulled reports whether this question was answered with a pull.
func (a answers) pulled(k messages.ImageKey, name string) bool { return a.gave(k, name) && a[k].pulled }

// prune drops answers that have expired.
func (a answers) prune(now time.Time) {
	maps.DeleteFunc(a, func(_ messages.ImageKey, was pullAnswer) bool { return now.Sub(was.at) > answersKept })
}

func (a answers) forget(uid string) {
	maps.DeleteFunc(a, func(k messages.ImageKey, _ pullAnswer) bool { return k.UID == uid })
}
