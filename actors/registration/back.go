package registration

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/playlet-dev/playlet/supervisors"
)

// An older Node than is known is either from before an answer that came sooner, or what an API server has that was set back, as after
// the restoration of a backup. The latter counts.

// believed is how long the answer to a write counts for more than an older Node that the watch tells. After that the API server
// was set back, by a backup of etcd perhaps, and what it has is the truth.
const believed = 30 * time.Second

// older says that a is the same object as b at an earlier time: the answer to a write may come before the watch tells what
// was before it.
func older(a, b *v1.Node) bool {
	if a == nil || b == nil || a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// settle believes the older Node that the watch told, when it is time, and says whether it was.
func (b *book) settle(now time.Time) bool {
	if b.held == nil || now.Sub(b.answered) <= believed {
		return false
	}
	b.goBack(b.held)
	return true
}

// goBack takes an older Node than was known. It is met as at first: what was set on it may be from before this agent.
func (b *book) goBack(node *v1.Node) {
	b.reconciled, b.held = "", nil
	b.take(node)
}

// awaitSettling has an older Node believed when it is time.
func (a *actor) awaitSettling(ctx supervisors.Context) {
	if a.settling != nil {
		a.settling.Cancel()
	}
	if a.book.held != nil {
		a.settling = ctx.After(a.book.answered.Add(believed).Sub(ctx.Now())+time.Millisecond, settleDue{})
	}
}

// settle believes an API server that was set back, where it said nothing newer meanwhile.
func (a *actor) settle(ctx supervisors.Context) {
	was := a.book.node
	if !a.book.settle(ctx.Now()) {
		return
	}
	ctx.Log().Warn("the API server has an older Node than it had, as after the restoration of a backup; that counts")
	a.tellNode(ctx)
	a.tellNews(ctx, was)
	a.act(ctx)
}
