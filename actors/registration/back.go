package registration

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// An older Node than the known one has two causes. The watch is late, and the Node is from before the answer to a write: it
// is dropped. Or the API server was set back, as by a restored backup: it is used. A list that began after the answer
// decides, since it holds what there is now.

// older reports whether a is the same object as b at an earlier time.
func older(a, b *v1.Node) bool {
	if a == nil || b == nil || a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// goBack takes an older Node than the known one. Its labels are reconciled anew, since they may be from before this agent.
func (b *nodeState) goBack(node *v1.Node) {
	b.reconciled = ""
	b.take(node)
}
