package images

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// stage is what a need waits for.
type stage int

const (
	looks stage = iota // whether the image is there
	pulls              // the end of a pull
)

// need is one question that is not answered yet.
type need struct {
	key      messages.ImageKey
	image    string // as the pod's author wrote it
	policy   v1.PullPolicy
	priority int64
	arrived  uint64
	stage    stage
	pulled   bool   // it was answered before with a pull; the same question is not worth another
	told     string // the last failure it was told
}

// image is one image that somebody needs, by the name that the runtime is given.
type image struct {
	name  string
	needs map[messages.ImageKey]*need
	look  try
	pull  try
}

// An effect is something that the actor is to do.
type effect interface{ effect() }

type (
	// tellPod answers a need.
	tellPod struct {
		uid string
		msg any
	}
	// startLook asks for one ImageStatus; book.looked gets its outcome.
	startLook struct{ name string }
	// startPull asks for one pull; book.pulled gets its outcome.
	startPull struct {
		name     string
		priority int64
	}
)

func (tellPod) effect()   {}
func (startLook) effect() {}
func (startPull) effect() {}

// outcome is how a look or a pull ended.
type outcome struct {
	result result
	ref    string // of the image that is there
	code   string // of a failure, with message
	msg    string
}

type result int

const (
	present     result = iota
	absent             // a look found none; a pull that was to be joined is over
	failed             // of a real cause: backs off
	unreachable        // the runtime could not be asked: tried again soon, without back-off
)

// book is the pure core: which images are needed by whom, and what is under way for them. Its methods take the time
// and return what is to be done, in order.
type book struct {
	limit   int // pulls at once
	running int
	arrived uint64
	images  map[string]*image
	answers answers
	pruned  time.Time // when the answers were
	out     []effect
}

func newBook(limit int) *book {
	return &book{limit: limit, images: map[string]*image{}, answers: answers{}}
}

// flush ends every method: it starts what can start and hands over what is to be done.
func (b *book) flush() []effect {
	b.dispatch()
	for name, im := range b.images {
		if len(im.needs) == 0 && im.look.phase != busy && im.pull.phase != busy {
			delete(b.images, name)
		}
	}
	out := b.out
	b.out = nil
	return out
}

func (b *book) tell(n *need, msg any) { b.out = append(b.out, tellPod{n.key.UID, msg}) }

func (b *book) image(name string) *image {
	im := b.images[name]
	if im == nil {
		im = &image{name: name, needs: map[messages.ImageKey]*need{}}
		b.images[name] = im
	}
	return im
}

// adopt notes a pull that is under way already: it takes its slot, and its outcome will be told to pulled.
func (b *book) adopt(name string) {
	im := b.image(name)
	if im.pull.phase != busy {
		im.pull.phase = busy
		b.running++
	}
}

// ask takes a need, by the name for the runtime. An earlier attempt of the same container, and the same attempt with
// another image, are not needed any more.
func (b *book) ask(name string, m messages.PullImage) []effect {
	if b.overtaken(m.Key) {
		return b.flush()
	}
	im := b.image(name)
	n := im.needs[m.Key]
	if n == nil || n.image != m.Image || n.policy != m.Policy {
		b.drop(func(k messages.ImageKey) bool { return k.UID == m.Key.UID && k.Container == m.Key.Container })
		b.arrived++
		n = &need{key: m.Key, image: m.Image, policy: m.Policy, arrived: b.arrived, priority: m.Priority}
		n.pulled = m.Policy != v1.PullNever && b.answers.pulled(m.Key, name)
		im.needs[m.Key] = n
		b.place(im, n)
		return b.flush()
	}
	n.priority = m.Priority
	// The same question again: the answer may have been lost.
	switch t := im.of(n); {
	case t.phase == waiting && n.stage == pulls:
		b.tell(n, messages.ImageFailed{Key: n.key, Image: n.image, Reason: t.reason()})
	case t.phase == waiting:
		b.place(im, n)
	}
	return b.flush()
}

// overtaken says that a later attempt of the same container is served already: the question was long on its way.
func (b *book) overtaken(key messages.ImageKey) bool {
	for _, im := range b.images {
		for k := range im.needs {
			if k.UID == key.UID && k.Container == key.Container && k.Attempt > key.Attempt {
				return true
			}
		}
	}
	return false
}

// of is what a need waits for.
func (im *image) of(n *need) *try {
	if n.stage == pulls {
		return &im.pull
	}
	return &im.look
}

// forget ends all needs of a pod.
func (b *book) forget(uid string) []effect {
	b.drop(func(k messages.ImageKey) bool { return k.UID == uid })
	b.answers.forget(uid)
	return b.flush()
}

func (b *book) drop(match func(messages.ImageKey) bool) {
	for _, im := range b.images {
		for k := range im.needs {
			if match(k) {
				delete(im.needs, k)
			}
		}
	}
}

// place puts a need where it starts: Always at the pull, unless it had one before; the others at a look.
func (b *book) place(im *image, n *need) {
	if n.policy == v1.PullAlways && !n.pulled {
		b.wantPull(im, n)
		return
	}
	n.stage = looks
	if im.look.phase != busy {
		im.look.phase = busy
		b.out = append(b.out, startLook{im.name})
	}
}

// wantPull puts a need before the pull, where it joins the one that is queued or under way.
func (b *book) wantPull(im *image, n *need) {
	n.stage = pulls
	switch im.pull.phase {
	case idle:
		im.pull.phase = queued
	case waiting:
		b.tell(n, messages.ImageFailed{Key: n.key, Image: n.image, Reason: im.pull.reason()})
	case queued, busy:
	}
}

// dispatch starts queued pulls while there are slots, by priority and then by age.
func (b *book) dispatch() {
	type candidate struct {
		im       *image
		priority int64
		arrived  uint64
	}
	var line []candidate
	for _, im := range b.images {
		if im.pull.phase != queued {
			continue
		}
		first := im.first(pulls)
		if first == nil { // nobody waits for it any more
			im.pull.phase = idle
			continue
		}
		line = append(line, candidate{im, first.priority, first.arrived})
	}
	slices.SortFunc(line, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.arrived, y.arrived))
	})
	for _, c := range line {
		if b.running >= b.limit {
			return
		}
		b.running++
		c.im.pull.phase = busy
		b.out = append(b.out, startPull{c.im.name, c.priority})
	}
}

// first is the need at the stage that comes first in the queue.
func (im *image) first(s stage) *need {
	if all := im.at(s); len(all) > 0 {
		return all[0]
	}
	return nil
}

// at lists the needs at the stage, in the order of the queue.
func (im *image) at(s stage) []*need {
	var out []*need
	for _, n := range im.needs {
		if n.stage == s {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(x, y *need) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.arrived, y.arrived))
	})
	return out
}
