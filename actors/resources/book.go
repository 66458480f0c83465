package resources

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/cgroups"
	"github.com/playlet-dev/playlet/messages"
)

// forgottenIn is how many whole wishes in a row must leave a pod out before what it asked for counts no more: the wish may be
// the older of the two, and the pod may have gone without a word.
const forgottenIn = 2

// book decides for the whole node. It does no I/O and knows no clock; its effects are carried out by the actor.
type book struct {
	pods map[string]*entry
	turn uint64

	node nodeGroups
	wish messages.PodCgroupsWanted // the last

	listing bool // what is on the disk is being listed
	relist  bool // and has to be once more
}

// nodeGroups is the book on kubepods and the groups of the QoS classes.
type nodeGroups struct {
	ready  bool // they have been made since the start
	busy   bool
	again  bool // what they weigh has changed meanwhile
	weigh  []*v1.Pod
	fails  int
	reason *messages.Reason
	turn   uint64
}

// effect is one thing to do, for one pod or, without UID, for the node.
type effect struct {
	uid  string
	what any
}

func newBook() *book { return &book{pods: map[string]*entry{}} }

// want takes a pod's wish for a group.
func (b *book) want(uid string, pod *v1.Pod) []effect {
	e := b.pods[uid]
	if e == nil {
		e = &entry{}
		b.pods[uid] = e
	}
	out := of(uid, e.want(uid, pod))
	if r := b.node.reason; r != nil && !b.node.ready {
		out = append(out, effect{uid, tell{messages.PodCgroupFailed{UID: uid, Reason: *r}}})
	}
	out = append(out, b.weigh(false)...)
	return append(out, b.next(uid)...)
}

// unwant takes a pod's word that it needs none any more.
func (b *book) unwant(uid string, asked bool) []effect {
	e := b.pods[uid]
	if e == nil {
		e = &entry{}
		b.pods[uid] = e
	}
	out := of(uid, e.unwant(uid, asked))
	return append(out, b.next(uid)...)
}

// on takes the result of an operation or a timer of one pod.
func (b *book) on(uid string, ev any, now time.Time) []effect {
	e := b.pods[uid]
	if e == nil {
		return nil
	}
	b.turn++
	var out []any
	switch ev := ev.(type) {
	case made:
		out = e.onMade(uid, ev, now, b.turn)
	case removed:
		out = e.onRemoved(uid, ev, now, b.turn)
	case retryDue:
		e.onRetry(ev.turn)
	}
	return append(of(uid, out), b.next(uid)...)
}

func (b *book) next(uid string) []effect {
	e := b.pods[uid]
	out := of(uid, e.next(b.node.ready))
	if e.phase == gone {
		delete(b.pods, uid)
	}
	return out
}

// active are the pods whose requests weigh.
func (b *book) active() []*v1.Pod {
	all := maps.Clone(b.wish.Active)
	if all == nil {
		all = map[string]*v1.Pod{}
	}
	for uid, e := range b.pods {
		if e.pod == nil {
			delete(all, uid)
		} else {
			all[uid] = e.pod
		}
	}
	out := make([]*v1.Pod, 0, len(all))
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[uid])
	}
	return out
}

// weigh has the groups of the node made and weighed, when what they hold has changed, or anyway.
func (b *book) weigh(anyway bool) []effect {
	n := &b.node
	pods := b.active()
	if !anyway && n.ready && slices.Equal(pods, n.weigh) {
		return nil
	}
	if n.busy {
		n.again = true
		return nil
	}
	if n.reason != nil && !anyway {
		return nil // a retry is on its way
	}
	n.busy, n.again, n.weigh = true, false, pods
	return []effect{{"", beginNode{pods}}}
}

// nodeMade takes the result for the groups of the node. Pods wait for the first that succeeds.
func (b *book) nodeMade(err error, now time.Time) []effect {
	n := &b.node
	n.busy = false
	var out []effect
	if err != nil {
		b.turn++
		n.fails++
		d := retryDelay(n.fails)
		n.turn = b.turn
		n.reason = &messages.Reason{Code: messages.ReasonCreatePodContainer, Message: err.Error(), RetryAt: now.Add(d)}
		out = append(out, effect{"", failed{"the node", err}}, effect{"", retryAfter{d, n.turn}})
		for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
			if e := b.pods[uid]; !n.ready && e.pod != nil {
				out = append(out, effect{uid, tell{messages.PodCgroupFailed{UID: uid, Reason: *n.reason}}})
			}
		}
		return out
	}
	out = append(out, effect{"", mended{"the node"}})
	first := !n.ready
	n.ready, n.fails, n.reason = true, 0, nil
	if first {
		for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
			out = append(out, b.next(uid)...)
		}
	}
	if n.again {
		out = append(out, b.weigh(false)...)
	}
	return out
}

// nodeRetry tries the groups of the node again.
func (b *book) nodeRetry(turn uint64) []effect {
	if b.node.reason == nil || b.node.turn != turn || b.node.busy {
		return nil
	}
	return b.weigh(true)
}

// wanted takes the whole wish of pods.
func (b *book) wanted(m messages.PodCgroupsWanted) []effect {
	b.wish = m
	out := b.weigh(true) // values that someone changed are set again, as by the kubelet, now and then
	if !m.Heard {
		return out
	}
	for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
		e := b.pods[uid]
		e.missing++
		if m.UIDs[uid] {
			e.missing = 0
		}
		if e.pod != nil && e.missing >= forgottenIn {
			out = append(out, b.unwant(uid, false)...)
		}
	}
	return append(out, b.list()...)
}

func (b *book) list() []effect {
	if b.listing {
		b.relist = true
		return nil
	}
	b.listing, b.relist = true, false
	return []effect{{"", beginList{}}}
}

// found takes the pods that have a group, by cgroups.Key or UID, and has those removed that nobody speaks for. The wish may
// have changed since the listing began: one that is not everybody's takes nothing away.
func (b *book) found(uids []string, err error) []effect {
	b.listing = false
	var out []effect
	spoken := map[string]bool{}
	for uid := range b.wish.UIDs {
		spoken[cgroups.Key(uid)] = true
	}
	for uid := range b.pods {
		spoken[cgroups.Key(uid)] = true
	}
	if err != nil {
		out = append(out, effect{"", failed{"listing them", err}})
	}
	if !b.wish.Heard {
		uids = nil
	}
	for _, uid := range uids {
		if messages.CheckUID(uid) == nil && !spoken[cgroups.Key(uid)] {
			out = append(out, b.unwant(uid, false)...)
		}
	}
	if b.relist {
		out = append(out, b.list()...)
	}
	return out
}

func of(uid string, what []any) []effect {
	var out []effect
	for _, w := range what {
		out = append(out, effect{uid, w})
	}
	return out
}
