package registration

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// An older Node than is known is either from before an answer that came sooner, or what an API server has that was set back, as after
// the restoration of a backup. The latter counts. A list that was begun after the answer tells which it is: it is of what there is now.

// older says that a is the same object as b at an earlier time: the answer to a write may come before the watch tells what
// was before it.
func older(a, b *v1.Node) bool {
	if a == nil || b == nil || a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// goBack takes an older Node than was known. It is met as at first: what was set on it may be from before this agent.
func (b *book) goBack(node *v1.Node) {
	b.reconciled = ""
	b.take(node)
}
