package images

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/messages"
)

// effect is an action that the actor must carry out.
type effect any

type (
	// podMessage answers a need.
	podMessage struct {
		uid string
		msg any
	}
	// startLook requests one ImageStatus; machine.handleLook gets its outcome.
	startLook struct{ name string }
	// startPull requests one pull; machine.pulledOutcome gets its outcome.
	startPull struct {
		name        string
		credentials credentials
		priority    int64
	}
	// endPull cuts off a pull without needs; machine.pulledOutcome gets its outcome.
	endPull struct{ name, id string }
)

// outcome is the result of a look or a pull.
type outcome struct {
	result result
	ref    string            // of the present image
	record pullrecord.Record // of the image that a look found
	size   uint64            // of the pulled image, in bytes
	code   string            // of a failure, with message
	msg    string
	cause  messages.Cause
}

type result int

const (
	present     result = iota
	absent             // a look found no image, or a pull to join had ended
	failed             // retried with back-off
	unreachable        // the runtime could not be reached: retried soon, without back-off
)

// machine is the pure core: the needs of pods, and the looks and pulls in progress. Its methods take the current time and
// return effects, in order.
type machine struct {
	queue   *lanes.Lanes
	policy  pullrecord.Policy
	arrived uint64
	checks  uint64
	images  map[string]*image
	answers answers
	pruned  time.Time // the time of the latest prune of answers
	out     []effect
}

func newMachine(q *lanes.Lanes) *machine {
	return &machine{queue: q, images: map[string]*image{}, answers: answers{}}
}

// flush ends every method: it starts queued pulls, reports progress to needs, and returns the effects.
func (b *machine) flush(now time.Time) []effect {
	b.dispatch(now)
	for name, im := range b.images {
		for id, p := range im.pulls {
			switch {
			case p.phase != busy && !im.wants(id):
				delete(im.pulls, id)
			case p.unneeded(now, im.wants(id)):
				b.out = append(b.out, endPull{name, id})
			}
		}
		if len(im.needs) == 0 && im.look.phase != busy && len(im.pulls) == 0 {
			delete(b.images, name)
		}
	}
	out := b.out
	b.out = nil
	return out
}

func (b *machine) send(n *need, msg any) { b.out = append(b.out, podMessage{n.key.UID, msg}) }

// fail sends a need the reason why its image is absent, and adds problems of its credentials.
func (b *machine) fail(n *need, t *try, r messages.Reason) {
	n.awaits = ""
	note := n.credentials.note
	if n.denied && n.stage == pulls {
		note += "; the image is on this node, pulled with credentials that this pod does not have"
	}
	r.Message += note
	r.Cause.Text += note
	key := r.Code + t.until.String()
	b.send(n, messages.ImageFailed{Key: n.key, Image: n.image, Reason: r, Again: n.failed == key})
	n.failed = key
}

func (b *machine) image(name, registry string) *image {
	im := b.images[name]
	if im == nil {
		im = &image{name: name, registry: registry, needs: map[messages.ImageKey]*need{}, pulls: map[string]*pull{}}
		b.images[name] = im
	}
	return im
}

// adopt records a pull in progress: it takes a slot, and pulledOutcome gets its outcome. The next flush counts its needs.
func (b *machine) adopt(now time.Time, name, registry, id string) {
	p := b.image(name, registry).pull(credentials{id: id})
	if p.phase != busy {
		p.phase, p.since, p.line = busy, now, lanes.Line{Registry: registry}
		b.queue.Begin(now, p.line)
	}
}

// ask adds a need. It replaces the need of an earlier attempt of the same container, and of the same attempt with another image.
func (b *machine) ask(now time.Time, m request) []effect {
	if b.overtaken(m.Key) {
		return b.flush(now)
	}
	im := b.image(m.name, m.registry)
	n := im.needs[m.Key]
	if n == nil || n.image != m.Image || n.policy != m.Policy {
		b.drop(m.Key.SamePlace)
		b.arrived++
		n = &need{key: m.Key, image: m.Image, policy: m.Policy, arrived: b.arrived}
		n.priority, n.pod, n.credentials = m.Priority, m.Pod, m.credentials
		n.pulled = m.Policy != v1.PullNever && b.answers.pulled(m.Key, m.name)
		im.needs[m.Key] = n
		b.place(now, im, n)
		return b.flush(now)
	}
	n.priority, n.pod = m.Priority, m.Pod
	b.rekey(now, im, n, m.credentials)
	// A repeated question: the answer may have been lost.
	n.awaits = ""
	switch t := im.of(n); {
	case t.phase == waiting && n.stage == pulls:
		b.fail(n, t, t.reason(n.image))
	case t.phase == waiting:
		b.place(now, im, n)
	}
	return b.flush(now)
}

// refresh updates the credentials of all needs.
func (b *machine) refresh(now time.Time, of func(pod *v1.Pod, image string) credentials) []effect {
	for _, name := range slices.Sorted(maps.Keys(b.images)) {
		im := b.images[name]
		for _, n := range im.needsWhere(func(*need) bool { return true }) {
			b.rekey(now, im, n, of(n.pod, n.image))
		}
	}
	return b.flush(now)
}

// rekey gives a need the current credentials of its pod. A need with changed credentials does not wait for the pull with the old
// ones.
func (b *machine) rekey(now time.Time, im *image, n *need, k credentials) {
	was := n.credentials.id
	n.credentials = k
	switch {
	case k.id == was:
	case n.stage == pulls:
		b.requestPull(now, im, n)
	case n.stage == checks, im.look.phase == waiting:
		b.place(now, im, n) // the new credentials may allow the present image
	}
}

// overtaken reports whether a later attempt of the same container has a need already, so that this question is outdated.
func (b *machine) overtaken(key messages.ImageKey) bool {
	for _, im := range b.images {
		for k := range im.needs {
			if k.SamePlace(key) && k.Attempt > key.Attempt {
				return true
			}
		}
	}
	return false
}

// forget ends all needs of a pod.
func (b *machine) forget(now time.Time, uid string) []effect {
	b.drop(func(k messages.ImageKey) bool { return k.UID == uid })
	b.answers.forget(uid)
	return b.flush(now)
}

func (b *machine) drop(match func(messages.ImageKey) bool) {
	for _, im := range b.images {
		for k := range im.needs {
			if match(k) {
				delete(im.needs, k)
			}
		}
	}
}

// place starts a need: with policy Always at the pull, unless it had one before; otherwise at a look.
func (b *machine) place(now time.Time, im *image, n *need) {
	n.awaits = ""
	if n.policy == v1.PullAlways && !n.pulled {
		b.requestPull(now, im, n)
		return
	}
	n.stage = looks
	if im.look.phase != busy {
		im.look.phase = busy
		b.out = append(b.out, startLook{im.name})
	}
}

// requestPull moves a need to the pull. It joins a pull that is queued or in progress.
func (b *machine) requestPull(now time.Time, im *image, n *need) {
	if n.stage != pulls || n.since.IsZero() {
		n.stage, n.since = pulls, now
	}
	switch p := im.pull(n.credentials); p.phase {
	case idle:
		p.phase, p.since = queued, now
	case waiting:
		b.fail(n, &p.try, p.reason(n.image))
	case queued, busy:
	}
}
