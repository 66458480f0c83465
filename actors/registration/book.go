package registration

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
)

// book is what the actor knows, and decides what is to be done next. It does nothing itself and has no clock.
type book struct {
	wish  Wish
	sizes Sizes
	began time.Time // of the process
	every time.Duration
	// random is in [0, 1).
	random func() float64

	facts    facts
	gathered bool

	heard      bool     // the API server has told whether there is a Node
	node       *v1.Node // as it has it; nil: none
	answered   uint64   // the lists that had begun when the answer to a write came that node was; the watch may not have told it yet
	registered bool     // it was there, in this process' life
	reconciled types.UID
	reported   time.Time // when the status was written last; zero: not yet
	spread     time.Duration
	statusAt   time.Time // when it was patched last, in this life,
	metaAt     time.Time // and labels and the like

	failures int
	retryAt  time.Time
	failed   string // why the last write failed
	watching string // why the watch does not stand
}

// deed is what is to be done next, at most one at a time.
type deed struct {
	create *v1.Node // a Node to be made
	patch  []byte   // of the Node that is there
	status bool     // the patch is of its status
	over   *v1.Node // what was known when it was made; nil: nothing
}

func (d deed) none() bool { return d.create == nil && d.patch == nil }

// name says what is being done.
func (d deed) name() string {
	switch {
	case d.create != nil:
		return "CreateNode"
	case d.status:
		return "PatchNodeStatus"
	default:
		return "PatchNode"
	}
}

// next is what is to be done now.
func (b *book) next(now time.Time) (deed, error) {
	if !b.gathered || !b.heard || now.Before(b.retryAt) {
		return deed{}, nil
	}
	if b.node == nil {
		if b.registered || !b.wish.Register {
			return deed{}, nil
		}
		return deed{create: compose(b.wish, b.sizes, b.facts, b.wish.initial(), b.began, now)}, nil
	}
	meta, err := metadataPatch(b.node, b.wish.reconciled(b.node, b.reconciled != b.node.UID))
	switch {
	case err != nil:
		return deed{}, err
	case meta == nil:
		b.reconciled = b.node.UID
	case !now.Before(b.metaAt.Add(writeRest)):
		return deed{patch: meta, over: b.node}, nil
	}
	status := compose(b.wish, b.sizes, b.facts, b.node, b.began, now)
	switch changed := differs(b.node, status); {
	case !changed && !b.due(now):
		return deed{}, nil
	case changed && !turned(b.node, status) && now.Before(b.statusAt.Add(writeRest)):
		return deed{}, nil // a look comes before long
	}
	text, err := statusPatch(b.node, status)
	return deed{patch: text, status: true, over: b.node}, err
}

// writeRest is how long what was just written is not written again, but for a condition that turned: an API server, or another writer,
// that takes back what is written here would otherwise be written to without end.
const writeRest = 9 * time.Second

// turned says that a condition of the agent's own is another than the API server has.
func turned(node, status *v1.Node) bool {
	for i := range status.Status.Conditions {
		c := &status.Status.Conditions[i]
		j := slices.IndexFunc(node.Status.Conditions, func(o v1.NodeCondition) bool { return o.Type == c.Type })
		if j < 0 || node.Status.Conditions[j].Status != c.Status || node.Status.Conditions[j].Reason != c.Reason || node.Status.Conditions[j].Message != c.Message {
			return true
		}
	}
	return false
}

// due says that a status that did not change is to be reported.
func (b *book) due(now time.Time) bool {
	return b.reported.IsZero() || now.Sub(b.reported) >= b.every+b.spread
}

// observe takes what the watch has seen, and says whether the Node is another than before.
func (b *book) observe(s Seen) bool {
	b.watching = ""
	if s.Err != nil {
		b.watching = s.Err.Error()
	}
	stale := s.Err != nil && s.Node == nil && b.node != nil // from before it was made; what comes after an error is listed anew
	if !s.Heard || stale {
		return false
	}
	if older(s.Node, b.node) {
		if s.List <= b.answered {
			return false // the watch has yet to tell what is known
		}
		b.goBack(s.Node)
		return true
	}
	changed := !b.heard || b.node != s.Node
	b.heard = true
	if s.Node == nil && b.node != nil { // what failed was about one that is gone
		b.failures, b.retryAt, b.failed = 0, time.Time{}, ""
	}
	b.take(s.Node)
	return changed
}

func (b *book) take(node *v1.Node) {
	b.node = node
	if node != nil {
		b.registered = true
	}
}

// done takes the answer to a deed: the Node after it, and how many lists had begun when it came.
func (b *book) done(d deed, node *v1.Node, lists uint64, now time.Time) {
	b.failures, b.retryAt, b.failed = 0, time.Time{}, ""
	if d.create != nil {
		b.reconciled = node.UID
	}
	if d.create != nil || d.status {
		// What changed sets the next report somewhere around its time, so that nodes do not all report at once; what was
		// merely due keeps the time that it has found.
		b.spread = 0
		if b.reported.IsZero() || b.node == nil || differs(b.node, node) {
			b.spread = time.Duration((b.random() - 0.5) * float64(b.every))
		}
		b.reported = now
	}
	switch {
	case d.status:
		b.statusAt = now
	case d.create == nil:
		b.metaAt = now
	}
	switch {
	case !older(node, b.node):
		b.take(node)
	case older(node, d.over): // the answer to what was asked later
		b.goBack(node)
	default:
		return // the watch told what came after it
	}
	b.answered = lists
}

// The rests after a failed write: the kubelet's.
const (
	firstRest = 200 * time.Millisecond
	maxRest   = 7 * time.Second
)

// fail takes the failure of a deed, and says after what rest it is tried again.
func (b *book) fail(why string, now time.Time) time.Duration {
	rest := min(firstRest<<min(b.failures, 10), maxRest)
	b.failures++
	b.failed, b.retryAt = why, now.Add(rest)
	return rest
}

// problems are what goes wrong, in sentences.
func (b *book) problems() []string {
	var out []string
	if b.failed != "" {
		out = append(out, b.failed)
	}
	if b.watching != "" && b.failed == "" {
		out = append(out, b.watching)
	}
	switch {
	case !b.heard || b.node != nil || b.failed != "":
	case b.registered:
		out = append(out, fmt.Sprintf("somebody has deleted the Node %s; as with the kubelet, it is made again when the agent is restarted", b.wish.Name))
	case !b.wish.Register:
		out = append(out, fmt.Sprintf("there is no Node %s, and registerNode is off: whoever sets nodes up here has to make it", b.wish.Name))
	}
	return out
}

// pressures takes a measurement, and says whether it is another than before.
func (b *book) pressures(m messages.NodePressureObserved) bool {
	was := b.facts.pressures
	b.facts.pressures = m.Pressures
	if len(was) != len(m.Pressures) {
		return true
	}
	for i, p := range m.Pressures {
		if p.Type != was[i].Type || p.Under != was[i].Under || p.Message != was[i].Message {
			return true
		}
	}
	return false
}
