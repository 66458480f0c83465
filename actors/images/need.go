package images

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/actors/images/pullauth"
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

// tenant returns the namespace of the need's pod. A person's need has none.
func (n *need) tenant() string {
	if n.pod == nil {
		return ""
	}
	return n.pod.Namespace
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
	// unwanted is the time at which a busy pull lost its last need; zero while it is needed. cut is set once it is cancelled.
	unwanted time.Time
	cut      bool
	line     lanes.Line // that it waits in, or takes its slot of
	slot     slot
}

// slot is the state of a busy pull's slot.
type slot int

const (
	slotHeld slot = iota
	slotLent      // another tenant has it; the pull counts for its own
	slotGone      // the pull counts for no tenant, either
)

const (
	// unneededLimit is how long a pull goes on without a need. A pod that replaces another may need it again.
	unneededLimit = time.Minute
	// slotLimit is how long a pull keeps its slot while others wait for one. It goes on without the slot.
	slotLimit = 2 * time.Hour
	// newcomerLimit is the same while a tenant waits that has no pull.
	newcomerLimit = time.Minute
)

// unneeded reports, once, that a busy pull has had no need for unneededLimit.
func (p *pull) unneeded(now time.Time, wanted bool) bool {
	switch {
	case p.phase != busy || wanted:
		p.unwanted = time.Time{}
	case p.unwanted.IsZero():
		p.unwanted = now
	case !p.cut && now.Sub(p.unwanted) >= unneededLimit:
		p.cut = true
		return true
	}
	return false
}

// wakes returns when tick has something to do about the pull; zero: not.
func (p *pull) wakes() time.Time {
	if p.phase == busy && !p.cut && !p.unwanted.IsZero() {
		return p.unwanted.Add(unneededLimit)
	}
	return p.try.wakes()
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
