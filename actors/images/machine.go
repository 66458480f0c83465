package images

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/messages"
)

// stage is what a need waits for.
type stage int

const (
	looks  stage = iota // whether the image is there
	checks              // whether its service account may use the image that is there
	pulls               // the end of a pull
)

// need is one question that is not answered yet.
type need struct {
	key      messages.ImageKey
	image    string // as the pod's author wrote it
	pod      *v1.Pod
	policy   v1.PullPolicy
	priority int64
	arrived  uint64
	stage    stage
	keys     keys
	pulled   bool   // it was answered before with a pull; the same question is not worth another
	denied   bool   // the image is here, and the pod may not use it without a pull of its own
	check    uint64 // the number of its latest check
	reported string // the last failure it was told
	// failed, pulling and since are of the last failure that it was told, of the last pull that it was told to be under way, and
	// since when it waits for a pull: what is told again is no news.
	failed         string
	pulling, since time.Time
	awaits         string // the last it was told of the pull that it waits for
}

// keys is what a registry is shown for somebody's pull. Those who show the same share a pull, and no others do: what one
// pod may have, another may not, and one that is refused does not hold up the rest.
type keys struct {
	id   string // tells keys apart; empty where there are none
	list []*pullauth.Credential
	note string // what is wrong with the pod's pull secrets
	// pod is whose service account counts for credential providers; nil: nobody's.
	pod *v1.Pod
	// unread says that some of these have not been read yet.
	unread bool
	// unfound are the pull secrets that do not exist.
	unfound []string
}

// request is a question as the machine takes it: by the name for the runtime, with what the registry is shown.
type request struct {
	messages.PullImage
	name     string
	registry string
	keys     keys
}

// image is one image that somebody needs, by the name that the runtime is given.
type image struct {
	name     string
	registry string
	needs    map[messages.ImageKey]*need
	look     try
	stale    bool             // the look under way may have been answered before a pull ended
	pulls    map[string]*pull // by keys.id
}

// pull is the pulls of one image with the same keys.
type pull struct {
	try
	keys  keys
	since time.Time // when it was queued, or when it began
}

// An effect is something that the actor is to do.
type effect any

type (
	// tellPod answers a need.
	tellPod struct {
		uid string
		msg any
	}
	// startLook asks for one ImageStatus; machine.looked gets its outcome.
	startLook struct{ name string }
	// startPull asks for one pull; machine.pulledOutcome gets its outcome.
	startPull struct {
		name     string
		keys     keys
		priority int64
	}
)

// outcome is how a look or a pull ended.
type outcome struct {
	result result
	ref    string            // of the image that is there
	record pullrecord.Record // of the image that a look found
	size   uint64            // of what was pulled, in bytes
	code   string            // of a failure, with message
	msg    string
	cause  string // what was said, alone
}

type result int

const (
	present     result = iota
	absent             // a look found none; a pull that was to be joined is over
	failed             // of a real cause: backs off
	unreachable        // the runtime could not be asked: tried again soon, without back-off
)

// machine is the pure core: which images are needed by whom, and what is under way for them. Its methods take the time
// and return what is to be done, in order.
type machine struct {
	queue   *lanes.Lanes
	policy  pullrecord.Policy
	arrived uint64
	checks  uint64
	images  map[string]*image
	answers answers
	pruned  time.Time // when the answers were
	out     []effect
}

func newMachine(q *lanes.Lanes) *machine {
	return &machine{queue: q, images: map[string]*image{}, answers: answers{}}
}

// flush ends every method: it starts what can start, tells who waits for what, and hands over what is to be done.
func (b *machine) flush(now time.Time) []effect {
	b.dispatch(now)
	for name, im := range b.images {
		for id, p := range im.pulls {
			if p.phase != busy && !im.wants(id) {
				delete(im.pulls, id)
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

func (b *machine) tell(n *need, msg any) { b.out = append(b.out, tellPod{n.key.UID, msg}) }

// fail tells a need why its image is not there, and what besides is wrong with what it shows the registry.
func (b *machine) fail(n *need, t *try, r messages.Reason) {
	n.awaits = ""
	note := n.keys.note
	if n.denied && n.stage == pulls {
		note += "; the image is on this node, pulled with credentials that this pod does not have"
	}
	r.Message += note
	r.Cause += note
	key := r.Code + t.until.String()
	b.tell(n, messages.ImageFailed{Key: n.key, Image: n.image, Reason: r, Again: n.failed == key})
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

// wants says that somebody's keys are these.
func (im *image) wants(id string) bool {
	for _, n := range im.needs {
		if n.keys.id == id {
			return true
		}
	}
	return false
}

// pull is the pulls with these keys, which are there from the first need on.
func (im *image) pull(k keys) *pull {
	p := im.pulls[k.id]
	if p == nil {
		p = &pull{}
		im.pulls[k.id] = p
	}
	if p.phase != busy {
		p.keys = k
	}
	return p
}

// adopt notes a pull that is under way already: it takes its slot, and its outcome will be told to pulledOutcome.
func (b *machine) adopt(now time.Time, name, registry, id string) {
	p := b.image(name, registry).pull(keys{id: id})
	if p.phase != busy {
		p.phase, p.since = busy, now
		b.queue.Begin(now, registry)
	}
}

// ask takes a need. An earlier attempt of the same container, and the same attempt with another image, are not needed any
// more.
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
		n.priority, n.pod, n.keys = m.Priority, m.Pod, m.keys
		n.pulled = m.Policy != v1.PullNever && b.answers.pulled(m.Key, m.name)
		im.needs[m.Key] = n
		b.place(now, im, n)
		return b.flush(now)
	}
	n.priority, n.pod = m.Priority, m.Pod
	b.rekey(now, im, n, m.keys)
	// The same question again: the answer may have been lost.
	n.awaits = ""
	switch t := im.of(n); {
	case t.phase == waiting && n.stage == pulls:
		b.fail(n, t, t.reason(n.image))
	case t.phase == waiting:
		b.place(now, im, n)
	}
	return b.flush(now)
}

// refresh looks again at what everybody's keys are.
func (b *machine) refresh(now time.Time, of func(pod *v1.Pod, image string) keys) []effect {
	for _, name := range slices.Sorted(maps.Keys(b.images)) {
		im := b.images[name]
		for _, n := range im.at(func(*need) bool { return true }) {
			b.rekey(now, im, n, of(n.pod, n.image))
		}
	}
	return b.flush(now)
}

// rekey gives a need the keys that its pod has by now. With others than before, it does not wait for what the registry
// said to those.
func (b *machine) rekey(now time.Time, im *image, n *need, k keys) {
	was := n.keys.id
	n.keys = k
	switch {
	case k.id == was:
	case n.stage == pulls:
		b.wantPull(now, im, n)
	case n.stage == checks, im.look.phase == waiting:
		b.place(now, im, n) // the image may be there for those
	}
}

// overtaken says that a later attempt of the same container is served already: the question was long on its way.
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

// of is what a need waits for.
func (im *image) of(n *need) *try {
	switch n.stage {
	case pulls:
		return &im.pull(n.keys).try
	case checks:
		return &try{phase: busy}
	case looks:
	}
	return &im.look
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

// place puts a need where it starts: Always at the pull, unless it had one before; the others at a look.
func (b *machine) place(now time.Time, im *image, n *need) {
	n.awaits = ""
	if n.policy == v1.PullAlways && !n.pulled {
		b.wantPull(now, im, n)
		return
	}
	n.stage = looks
	if im.look.phase != busy {
		im.look.phase = busy
		b.out = append(b.out, startLook{im.name})
	}
}

// wantPull puts a need before the pull, where it joins the one that is queued or under way.
func (b *machine) wantPull(now time.Time, im *image, n *need) {
	if n.stage != pulls || n.since.IsZero() {
		n.stage, n.since = pulls, now
	}
	switch p := im.pull(n.keys); p.phase {
	case idle:
		p.phase, p.since = queued, now
	case waiting:
		b.fail(n, &p.try, p.reason(n.image))
	case queued, busy:
	}
}

// at lists the needs that match, in the order of the queue.
func (im *image) at(match func(*need) bool) []*need {
	var out []*need
	for _, n := range im.needs {
		if match(n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(x, y *need) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.arrived, y.arrived))
	})
	return out
}

// looking are the needs that wait for a look.
func (im *image) looking() []*need { return im.at(func(n *need) bool { return n.stage == looks }) }

// pulling are the needs that wait for the pull with these keys.
func (im *image) pulling(id string) []*need {
	return im.at(func(n *need) bool { return n.stage == pulls && n.keys.id == id })
}
