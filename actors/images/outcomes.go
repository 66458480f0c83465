package images

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// looked takes the end of a look.
func (b *book) looked(now time.Time, name string, o outcome) []effect {
	im := b.images[name]
	if im == nil || im.look.phase != busy {
		return b.flush()
	}
	im.look.phase = idle
	switch o.result {
	case present:
		im.look.steps = 0
		b.found(now, im, o.ref)
	case absent:
		b.missing(now, im)
	case failed, unreachable:
		o.msg = fmt.Sprintf("could not find out whether the image %q is there: %s", name, o.msg)
		im.look.fail(now, o)
		b.tellFailure(im, looks)
	}
	return b.flush()
}

// found answers those who do not insist on a pull.
func (b *book) found(now time.Time, im *image, ref string) {
	for _, s := range []stage{looks, pulls} {
		for _, n := range im.at(s) {
			if n.policy != v1.PullAlways || n.pulled {
				b.answer(now, im, n, messages.ImagePulled{Key: n.key, Image: n.image, Ref: ref, Pulled: n.pulled})
			}
		}
	}
}

// missing sends those who looked to the pull, but for those who must not pull.
func (b *book) missing(now time.Time, im *image) {
	never := false
	for _, n := range im.at(looks) {
		if n.policy == v1.PullNever {
			never = true
			continue
		}
		n.pulled = false
		b.wantPull(im, n)
	}
	if !never {
		im.look.steps = 0
		return
	}
	im.look.fail(now, outcome{
		result: failed, code: messages.ReasonErrImageNeverPull,
		msg: fmt.Sprintf("the image %q is not on this node, and the pull policy is Never", im.name),
	})
	b.tellFailure(im, looks)
}

// pulledOutcome takes the end of a pull.
func (b *book) pulledOutcome(now time.Time, name string, o outcome) []effect {
	im := b.images[name]
	if im == nil || im.pull.phase != busy {
		return b.flush()
	}
	b.running--
	im.pull.phase = idle
	switch o.result {
	case present:
		im.pull.steps = 0
		for _, n := range im.at(pulls) {
			b.answer(now, im, n, messages.ImagePulled{Key: n.key, Image: n.image, Ref: o.ref, Pulled: true})
		}
		// Whoever still waits here looks again: the image is there now.
		for _, n := range im.at(looks) {
			b.place(im, n)
		}
	case absent:
		for _, n := range im.at(pulls) {
			b.place(im, n)
		}
	case failed, unreachable:
		o.msg = fmt.Sprintf("could not pull the image %q: %s", name, o.msg)
		im.pull.fail(now, o)
		if o.result == failed {
			im.pull.notice = now.Add(im.pull.until.Sub(now) / 2)
		}
		b.tellFailure(im, pulls)
	}
	return b.flush()
}

// answer ends a need.
func (b *book) answer(now time.Time, im *image, n *need, m messages.ImagePulled) {
	b.tell(n, m)
	delete(im.needs, n.key)
	b.answers.remember(now, m, im.name)
	if now.Sub(b.pruned) > answersKept {
		b.pruned = now
		b.answers.prune(now)
	}
}

// tick does what is due.
func (b *book) tick(now time.Time) []effect {
	for _, im := range b.images {
		if im.look.phase == waiting && !im.look.until.After(now) {
			im.look.phase = idle
			for _, n := range im.at(looks) {
				b.place(im, n)
			}
		}
		p := &im.pull
		if p.phase != waiting {
			continue
		}
		if !p.until.After(now) {
			p.phase = idle
			for _, n := range im.at(pulls) {
				b.place(im, n) // somebody may have brought the image meanwhile
			}
			continue
		}
		if !p.notice.IsZero() && !p.notice.After(now) {
			p.notice = time.Time{}
			for _, n := range im.at(pulls) {
				b.tell(n, messages.ImageFailed{Key: n.key, Image: n.image, Reason: p.reason()})
			}
		}
	}
	return b.flush()
}

// due is when tick has something to do; zero when it has not.
func (b *book) due() time.Time {
	var first time.Time
	for _, im := range b.images {
		for _, t := range []time.Time{im.look.wakes(), im.pull.wakes()} {
			if !t.IsZero() && (first.IsZero() || t.Before(first)) {
				first = t
			}
		}
	}
	return first
}

// tellFailure tells the last failure to those at the stage. That the runtime cannot be reached, which is tried many
// times, is told once.
func (b *book) tellFailure(im *image, s stage) {
	for _, n := range im.at(s) {
		t := im.of(n)
		if t.last == unreachable && n.told == t.failed.String() {
			continue
		}
		n.told = t.failed.String()
		b.tell(n, messages.ImageFailed{Key: n.key, Image: n.image, Reason: t.failed})
	}
}
