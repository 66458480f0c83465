package images

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// An image that was pulled for a service account is for those pods of it to which a credential provider gives credentials today.
// That is asked when it matters alone: the image is there, and nothing else lets the pod in.

// startCheck asks for credentials of a need's service account; machine.checked gets whether they are those of the record.
type startCheck struct {
	need   messages.ImageKey
	number uint64
	image  string
	ref    string
	record pullrecord.Record
	keys   keys
}

// checked is the end of a check.
type checked struct {
	startCheck
	allowed bool
	note    string // which credential providers failed
}

func (b *machine) beginCheck(im *image, n *need, o outcome) {
	b.checks++
	n.stage, n.check = checks, b.checks
	b.out = append(b.out, startCheck{
		need: n.key, number: n.check, image: im.name, ref: o.ref, record: o.record, keys: n.keys,
	})
}

// checked takes the end of a check: who may not use the image is sent to the pull, but for those who must not pull.
func (b *machine) checked(now time.Time, m checked) []effect {
	im := b.images[m.image]
	if im == nil || im.needs[m.need] == nil || im.needs[m.need].stage != checks || im.needs[m.need].check != m.number {
		return b.flush(now)
	}
	switch n := im.needs[m.need]; {
	case m.allowed:
		n.denied, im.look.steps = false, 0
		b.answer(now, im, n, messages.ImagePulled{Key: n.key, Image: n.image, Ref: m.ref, Again: b.answers.gave(n.key, im.name)})
	case n.policy != v1.PullNever:
		b.wantPull(now, im, n)
	default:
		n.stage = looks
		if im.look.phase != busy { // else that look leads here again
			b.refuse(now, im, notYours, m.note)
		}
	}
	return b.flush(now)
}

// check asks the credential providers.
func (a *images) check(ctx supervisors.Context, e startCheck) {
	work := supervisors.Work{Name: "credentials for " + e.image, Pod: e.need.UID, Timeout: lookTimeout}
	work.Run = func(ctx context.Context) any {
		out := checked{startCheck: e}
		name, _ := parseName(e.image) // it was parsed when it was asked for
		shown, problems := a.provided(ctx, name.repository, e.keys)
		out.allowed = a.opts.Policy.Allows(e.image, e.record, shown)
		for _, p := range problems {
			out.note += "; " + p.Error()
		}
		return out
	}
	ctx.Do(work)
}
