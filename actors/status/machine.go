package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/playlet-dev/playlet/messages"
)

// writers is how many writes are under way at most. One write takes the API server some milliseconds, most of it the wait for
// etcd's disk, so that one at a time would make ninety pods wait for one another; beyond eight the default budget of the
// client (kubeAPIQPS, 50 a second) is used up anyway.
const writers = 8

// believed is how long the result of a write counts for more than an older object that is observed. After that the API server
// was set back, by a backup of etcd perhaps, and what it has is the truth.
const believed = 30 * time.Second

// machine is the whole state: pure, without a clock.
type machine struct {
	node    string
	nodeUID types.UID // of the Node object; empty until it is known
	random  func() float64

	seen   bool // the API server's pods were told
	heard  bool // every source was heard, and what they want was told
	lines  map[string]*line
	dirty  map[*line]bool
	todo   map[*line]bool // those with something to write
	logged []*v1.Pod      // what was observed last
	// unsettled are lines that have more to learn of what is observed than that it has changed, and troubled those with troubles:
	// some, so that a message costs what it says and not what there is.
	unsettled, troubled map[*line]bool
	busy                int
	taken               int // writes that were begun
	gate                gate
}

// line is the work for one pod: one of the API server, by its UID, or the static ones of one name and their mirror pod.
type line struct {
	key, namespace, name string

	wants    map[string]*messages.PodStatusWanted // by UID
	observed *v1.Pod                              // nil: it is not there

	belief *belief

	sent *sending // the last status that was written

	deleteAfter time.Time // it was deleted, and is not deleted again before this
	deletions   int
	makeAfter   time.Time // the mirror pod was created, and is not again before this where somebody else removes or changes it
	madeAt      time.Time
	makes       int
	ours        bool // its last object was deleted by us, for the next version of the static pod

	next     *job
	since    time.Time // since when there is something to write
	busy     bool
	failures int
	due      time.Time
	trouble  *trouble
}

// belief is what a write made of an object, which counts for more than what is observed until that has caught up.
type belief struct {
	uid  types.UID
	pod  *v1.Pod // nil: it is not there any more
	over *v1.Pod // what was observed at that time
	at   time.Time
}

// sending is one status as it was written, and what the API server made of it.
type sending struct {
	uid           types.UID
	from, to, got *v1.PodStatus
}

func newMachine(node string, random func() float64) *machine {
	return &machine{
		node: node, random: random, lines: map[string]*line{}, dirty: map[*line]bool{}, todo: map[*line]bool{},
		unsettled: map[*line]bool{}, troubled: map[*line]bool{},
	}
}

func apiKey(uid string) string                { return "pod/" + uid }
func staticKey(namespace, name string) string { return "static/" + namespace + "/" + name }

func (b *machine) line(key, namespace, name string) *line {
	l := b.lines[key]
	if l == nil {
		l = &line{key: key, namespace: namespace, name: name, wants: map[string]*messages.PodStatusWanted{}}
		b.lines[key] = l
	}
	return l
}

func (b *machine) want(m messages.PodStatusWanted) {
	if m.Pod == nil {
		return
	}
	key := apiKey(m.UID)
	if m.Static {
		key = staticKey(m.Pod.Namespace, m.Pod.Name)
	}
	l := b.line(key, m.Pod.Namespace, m.Pod.Name)
	if old := l.wants[m.UID]; old == nil || *old != m {
		l.wants[m.UID] = &m
		b.dirty[l] = true
	}
}

// wantAll takes the whole set: what is not in it is not wanted.
func (b *machine) wantAll(m messages.PodStatusesWanted) {
	uids := make(map[string]bool, len(m.Pods))
	for _, p := range m.Pods {
		uids[p.UID] = true
		b.want(p)
	}
	for _, l := range b.lines {
		for uid := range l.wants {
			if !uids[uid] {
				delete(l.wants, uid)
				b.dirty[l] = true
			}
		}
	}
	if m.Heard != b.heard {
		b.heard = m.Heard
		b.all()
	}
}

func (b *machine) all() {
	for _, l := range b.lines {
		b.dirty[l] = true
	}
}

func (b *machine) register(node *v1.Node) {
	var uid types.UID
	if node != nil {
		uid = node.UID
	}
	if uid != b.nodeUID {
		b.nodeUID = uid
		b.all()
	}
}

// observe takes what the API server has: what differs from before, which is the pods between those at the beginning and the end
// of the list that do not.
func (b *machine) observe(m messages.APIPodsObserved) {
	was, now := b.logged, m.Pods
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	b.logged = m.Pods
	there := make(map[*line]bool, len(now))
	for _, p := range now {
		l := b.lineOf(p)
		there[l] = true
		b.see(l, p, m.At)
	}
	for _, p := range was {
		if l := b.lineOf(p); !there[l] {
			b.see(l, nil, m.At)
		}
	}
	for l := range b.unsettled {
		b.see(l, l.observed, m.At)
	}
	if !b.seen {
		b.seen = true
		b.all()
	}
}

// lineOf is the line of an object. One that is no mirror pod has a line of its own, and also stands in the way of a mirror pod
// of its name: that is seen when the mirror pod cannot be created.
func (b *machine) lineOf(p *v1.Pod) *line {
	if isMirror(p) {
		return b.line(staticKey(p.Namespace, p.Name), p.Namespace, p.Name)
	}
	return b.line(apiKey(string(p.UID)), p.Namespace, p.Name)
}

// see takes what the API server has of one pod; nil where it has none.
func (b *machine) see(l *line, p *v1.Pod, at time.Time) {
	if l.observed != p {
		b.news(l)
		if p == nil { // its name is free
			b.news(b.lines[staticKey(l.namespace, l.name)])
		}
	}
	l.observed = p
	if l.belief != nil && l.caughtUp(at) {
		l.belief = nil
		b.dirty[l] = true
	}
	if p == nil {
		l.deleteAfter, l.deletions = time.Time{}, 0
	}
	if l.belief == nil && l.deletions == 0 {
		delete(b.unsettled, l)
	}
}

// news has a line looked at again, and what was in conflict tried again at once.
func (b *machine) news(l *line) {
	if l == nil {
		return
	}
	if l.trouble != nil && l.trouble.fate == conflict {
		l.failures, l.due = 0, time.Time{}
	}
	b.dirty[l] = true
}

// caughtUp says that what is observed is no older than what was written.
func (l *line) caughtUp(at time.Time) bool {
	switch p, is := l.observed, l.belief; {
	case at.Sub(is.at) > believed:
		return true
	case p == nil:
		// It was there and is not any more; one that was only just created may not be observed yet.
		return is.over != nil && is.over.UID == is.uid
	case is.pod == nil:
		return p != is.over
	default:
		order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, is.pod.ResourceVersion)
		if err != nil {
			return p != is.over
		}
		return order >= 0
	}
}

// current is the object as it is, as far as is known; nil where there is none.
func (l *line) current() *v1.Pod {
	if l.belief != nil {
		return l.belief.pod
	}
	return l.observed
}

// wanted is the one of which the line is to tell. Of static pods of one name that is the one which the mirror pod stands for
// already, as its successor waits for its end; else one of which something is known.
func (l *line) wanted(mirror *v1.Pod) *messages.PodStatusWanted {
	var uids []string
	for uid := range l.wants {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	var best *messages.PodStatusWanted
	for _, uid := range uids {
		w := l.wants[uid]
		switch {
		case w.Static && w.Over:
		case w.Static && mirror != nil && mirror.Annotations[mirrorAnnotation] == hashOf(w.Pod):
			return w
		case best == nil || (best.Status == nil && w.Status != nil):
			best = w
		}
	}
	return best
}
