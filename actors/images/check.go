package images

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// An image pulled for a service account may be used by pods of this account that a credential provider still gives credentials.
// The check runs only if it decides: the image is present, and nothing else admits the pod.

// startCheck requests the credentials of a need's service account; machine.checked gets the result of their comparison with the
// record.
type startCheck struct {
	need        messages.ImageKey
	number      uint64
	image       string
	ref         string
	record      pullrecord.Record
	credentials credentials
}

// checkResult is the result of a check.
type checkResult struct {
	startCheck
	allowed bool
	note    string // the failures of credential providers
}

func (b *machine) beginCheck(im *image, n *need, o outcome) {
	b.checks++
	n.stage, n.check = checks, b.checks
	b.out = append(b.out, startCheck{
		need: n.key, number: n.check, image: im.name, ref: o.ref, record: o.record, credentials: n.credentials,
	})
}

// handleCheck handles the result of a check. It moves a refused need to the pull, unless its policy is Never.
func (b *machine) handleCheck(now time.Time, m checkResult) []effect {
	im := b.images[m.image]
	if im == nil || im.needs[m.need] == nil || im.needs[m.need].stage != checks || im.needs[m.need].check != m.number {
		return b.flush(now)
	}
	switch n := im.needs[m.need]; {
	case m.allowed:
		n.denied, im.look.steps = false, 0
		b.answer(now, im, n, messages.ImagePulled{Key: n.key, Image: n.image, Ref: m.ref, Again: b.answers.gave(n.key, im.name)})
	case n.policy != v1.PullNever:
		b.requestPull(now, im, n)
	default:
		n.stage = looks
		if im.look.phase != busy { // otherwise the look in progress leads to another check
			b.refuse(now, im, notYours, m.note)
		}
	}
	return b.flush(now)
}

// check starts the work that asks the credential providers.
func (a *images) check(ctx supervisors.Context, e startCheck) {
	work := supervisors.Work{Name: "credentials for " + e.image, Pod: e.need.UID, Timeout: lookTimeout}
	work.Run = func(ctx context.Context) any {
		out := checkResult{startCheck: e}
		name, _ := parseName(e.image) // it was valid in the request
		shown, problems := a.provided(ctx, name.repository, e.credentials)
		out.allowed = a.opts.Policy.Allows(e.image, e.record, shown)
		for _, p := range problems {
			out.note += "; " + p.Error()
		}
		return out
	}
	ctx.Do(work)
}
