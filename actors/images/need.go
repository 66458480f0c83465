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

// stage is the step that a need waits for.
type stage int

const (
	looks  stage = iota // a look for the image
	checks              // the check whether its service account may use the present image
	pulls               // the end of a pull
)

// need is a question that is not answered yet.
type need struct {
	key         messages.ImageKey
	image       string // as the pod's author wrote it
	pod         *v1.Pod
	policy      v1.PullPolicy
	priority    int64
	arrived     uint64
	stage       stage
	credentials credentials
	pulled      bool   // it was answered with a pull before, and a repeated question does not start another
	denied      bool   // the image is present, but the pod may not use it without a pull of its own
	check       uint64 // the number of its latest check
	reported    string // the latest failure sent
	// failed identifies the latest failure sent, pulling the latest pull in progress sent. They mark repeated messages. since is
	// the start of its wait for a pull.
	failed         string
	pulling, since time.Time
	awaits         string // the latest progress sent
}

// tenant returns the namespace of the need's pod. A person's need has none.
func (n *need) tenant() string {
	if n.pod == nil {
		return ""
	}
	return n.pod.Namespace
}

// credentials are the credentials of a need. Only needs with equal credentials share a pull: a registry may refuse one pod and
// accept another, and a refused pull must not block the others.
type credentials struct {
	id   string // identifies the credentials; empty for none
	list []*pullauth.Credential
	note string // problems of the pod's pull secrets
	// pod is the pod of the service account for credential providers; nil for no account.
	pod *v1.Pod
	// unread means that some pull secrets have not been read yet.
	unread bool
	// unfound are the names of pull secrets that do not exist.
	unfound []string
}

// request is the machine's form of PullImage: with the image's name for the runtime, and the credentials for the registry.
type request struct {
	messages.PullImage
	name        string
	registry    string
	credentials credentials
}

// image is a needed image, by its name for the runtime.
type image struct {
	name     string
	registry string
	needs    map[messages.ImageKey]*need
	look     try
	stale    bool             // the look in progress may have been answered before a pull ended
	pulls    map[string]*pull // by credentials.id
}

// pull is the state of the pulls of one image with the same credentials.
type pull struct {
	try
	credentials credentials
	since       time.Time // when it was queued, or when it began
	// unwanted is the time at which a busy pull lost its last need; zero while it is needed. cut is set once it is cancelled.
	unwanted time.Time
	cut      bool
	line     lanes.Line // the line in which it waits or has a slot
	slot     slot
}

// slot is the state of a busy pull's slot.
type slot int

const (
	slotHeld slot = iota
	slotLent      // another tenant has it; the pull still counts for its own tenant
	slotGone      // the pull counts for no tenant, either
)

const (
	// unneededLimit is how long a pull goes on without a need. A pod that replaces another may need it again.
	unneededLimit = time.Minute
	// slotLimit is how long a pull keeps its slot while others wait for one. It goes on without the slot.
	slotLimit = 2 * time.Hour
	// newcomerLimit replaces slotLimit while a tenant without a pull waits.
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

// wakes returns the time at which tick must handle the pull; zero for never.
func (p *pull) wakes() time.Time {
	if p.phase == busy && !p.cut && !p.unwanted.IsZero() {
		return p.unwanted.Add(unneededLimit)
	}
	return p.try.wakes()
}

// wants reports whether a need has these credentials.
func (im *image) wants(id string) bool {
	for _, n := range im.needs {
		if n.credentials.id == id {
			return true
		}
	}
	return false
}

// pull returns the pull with these credentials, and creates it if necessary.
func (im *image) pull(k credentials) *pull {
	p := im.pulls[k.id]
	if p == nil {
		p = &pull{}
		im.pulls[k.id] = p
	}
	if p.phase != busy {
		p.credentials = k
	}
	return p
}

// of returns the try that a need waits for.
func (im *image) of(n *need) *try {
	switch n.stage {
	case pulls:
		return &im.pull(n.credentials).try
	case checks:
		return &try{phase: busy}
	case looks:
	}
	return &im.look
}

// needsWhere returns the needs that match, in the order of the queue.
func (im *image) needsWhere(match func(*need) bool) []*need {
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

// looking returns the needs that wait for a look.
func (im *image) looking() []*need {
	return im.needsWhere(func(n *need) bool { return n.stage == looks })
}

// pulling returns the needs that wait for the pull with these credentials.
func (im *image) pulling(id string) []*need {
	return im.needsWhere(func(n *need) bool { return n.stage == pulls && n.credentials.id == id })
}
