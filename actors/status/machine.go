package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/playlet-dev/playlet/messages"
)

// writers is the maximum number of writes in progress. One write takes the API server some milliseconds, mostly for etcd's
// disk. One at a time would make ninety pods wait for one another. Eight use up the client's default budget (kubeAPIQPS, 50 a
// second).
const writers = 8

// believed is how long the result of a write takes precedence over an older observed object. After that, the API server was
// restored to an earlier state, perhaps from a backup of etcd, and its object is valid.
const believed = 30 * time.Second

// machine is the whole state: pure, without a clock.
type machine struct {
	node    string
	nodeUID types.UID // of the Node object; empty until it is known
	random  func() float64

	seen          bool // the API server's pods were received
	sourcesSynced bool // every source has reported, and the desired pods were received
	lines         map[string]*podWriter
	dirty         map[*podWriter]bool
	todo          map[*podWriter]bool // lines with a write to do
	logged        []*v1.Pod           // the list observed last
	// pendingChanges are lines that need a look at each observed list, even where it has not changed. troubled are lines with
	// failures. Both are subsets, so that the cost of a message is proportional to the change.
	pendingChanges, troubled map[*podWriter]bool
	stepDelay                time.Duration // the wait of changes of starts and ends
	burstUntil               time.Time     // stepDelay is not shortened before
	busy                     int
	taken                    int // writes started so far
	server                   serverState
}

// podWriter is the work for one pod: a pod of the API server, by its UID, or the static pods of one name and their mirror pod.
type podWriter struct {
	key, namespace, name string

	wants    map[string]*messages.PodStatusWanted // by UID
	observed *v1.Pod                              // nil: absent

	cached *cachedObject

	sent *statusWrite // the last status that was written

	deleteAfter time.Time // the earliest time of another deletion
	deletions   int
	makeAfter   time.Time // when a mirror pod that others remove or change may be created again
	madeAt      time.Time
	makes       int
	ours        bool // its last object was deleted by us, for the next version of the static pod

	next     *job
	since    time.Time // when the pending write arose
	stepped  time.Time // when it became the write of a step; zero: it is none
	busy     bool
	failures int
	due      time.Time
	failure  *failureState
}

// cachedObject is the object that a write produced. It replaces the observed object until the watch has caught up.
type cachedObject struct {
	uid  types.UID
	pod  *v1.Pod // nil: deleted
	over *v1.Pod // the observed object at that time
	at   time.Time
}

// statusWrite is one written status, and the status that the API server made of it.
type statusWrite struct {
	uid           types.UID
	from, to, got *v1.PodStatus
}

func newMachine(node string, random func() float64) *machine {
	return &machine{
		node: node, random: random, lines: map[string]*podWriter{}, dirty: map[*podWriter]bool{}, todo: map[*podWriter]bool{},
		pendingChanges: map[*podWriter]bool{}, troubled: map[*podWriter]bool{},
	}
}

// unwritten returns the number of writes in progress, and of statuses that wait for their first one; 0 while the API server takes
// none.
func (b *machine) unwritten() int64 {
	if b.server.failures > 0 {
		return 0
	}
	n := int64(b.busy)
	for l := range b.todo {
		if l.next.verb == patchStatus && l.failures == 0 {
			n++
		}
	}
	return n
}

func apiKey(uid string) string                { return "pod/" + uid }
func staticKey(namespace, name string) string { return "static/" + namespace + "/" + name }

func (b *machine) writer(key, namespace, name string) *podWriter {
	l := b.lines[key]
	if l == nil {
		l = &podWriter{key: key, namespace: namespace, name: name, wants: map[string]*messages.PodStatusWanted{}}
		b.lines[key] = l
	}
	return l
}

func (b *machine) setDesired(m messages.PodStatusWanted) {
	if m.Pod == nil {
		return
	}
	key := apiKey(m.UID)
	if m.Static {
		key = staticKey(m.Pod.Namespace, m.Pod.Name)
	}
	l := b.writer(key, m.Pod.Namespace, m.Pod.Name)
	if old := l.wants[m.UID]; old == nil || *old != m {
		l.wants[m.UID] = &m
		b.dirty[l] = true
	}
}

// replaceDesired replaces the set of desired pods.
func (b *machine) replaceDesired(m messages.PodStatusesWanted) {
	uids := make(map[string]bool, len(m.Pods))
	for _, p := range m.Pods {
		uids[p.UID] = true
		b.setDesired(p)
	}
	for _, l := range b.lines {
		for uid := range l.wants {
			if !uids[uid] {
				delete(l.wants, uid)
				b.dirty[l] = true
			}
		}
	}
	if m.Heard != b.sourcesSynced {
		b.sourcesSynced = m.Heard
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

// observe handles the API server's list. Only the pods between the common head and tail of the old and new lists are
// examined.
func (b *machine) observe(m messages.APIPodsObserved) {
	was, now := b.logged, m.Pods
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	b.logged = m.Pods
	there := make(map[*podWriter]bool, len(now))
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
	for l := range b.pendingChanges {
		b.see(l, l.observed, m.At)
	}
	if !b.seen {
		b.seen = true
		b.all()
	}
}

// lineOf returns the line of an object. An ordinary pod has a line of its own. It may also block a mirror pod of its name,
// which shows when the creation fails.
func (b *machine) lineOf(p *v1.Pod) *podWriter {
	if isMirror(p) {
		return b.writer(staticKey(p.Namespace, p.Name), p.Namespace, p.Name)
	}
	return b.writer(apiKey(string(p.UID)), p.Namespace, p.Name)
}

// see records the API server's object for one pod; nil if there is none.
func (b *machine) see(l *podWriter, p *v1.Pod, at time.Time) {
	if l.observed != p {
		b.markChanged(l)
		if p == nil { // its name is free
			b.markChanged(b.lines[staticKey(l.namespace, l.name)])
		}
	}
	l.observed = p
	if l.cached != nil && l.caughtUp(at) {
		l.cached = nil
		b.dirty[l] = true
	}
	if p == nil {
		l.deleteAfter, l.deletions = time.Time{}, 0
	}
	if l.cached == nil && l.deletions == 0 {
		delete(b.pendingChanges, l)
	}
}

// markChanged marks a line as changed, and retries a conflict at once.
func (b *machine) markChanged(l *podWriter) {
	if l == nil {
		return
	}
	if l.failure != nil && l.failure.outcome == conflict {
		l.failures, l.due = 0, time.Time{}
	}
	b.dirty[l] = true
}

// caughtUp reports whether the observed object is no older than the written one.
func (l *podWriter) caughtUp(at time.Time) bool {
	switch p, is := l.observed, l.cached; {
	case at.Sub(is.at) > believed:
		return true
	case p == nil:
		// The object was observed before and is absent now. A newly created one may not be observed yet.
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

// current returns the newest known object, or nil if there is none.
func (l *podWriter) current() *v1.Pod {
	if l.cached != nil {
		return l.cached.pod
	}
	return l.observed
}

// wanted returns the pod that the line reports on. Among static pods of one name, that is the pod that the mirror pod already
// represents, as its successor waits for its end. Otherwise it is one with a status.
func (l *podWriter) wanted(mirror *v1.Pod) *messages.PodStatusWanted {
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
