package file

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
)

// claim is a pod and the manifest that named it first.
type claim struct {
	pod  *v1.Pod
	path string
}

// claims are the names and UIDs of pods that are taken. Its zero value has none.
type claims struct {
	names map[types.NamespacedName]*claim
	uids  map[types.UID]*claim
}

// rival is who has the pod's name or UID already, if anybody.
func (c *claims) rival(pod *v1.Pod) *claim {
	if r := c.names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; r != nil {
		return r
	}
	return c.uids[pod.UID]
}

// claim takes the pod's name and UID, which nobody has.
func (c *claims) claim(pod *v1.Pod, path string) {
	if c.names == nil {
		c.names, c.uids = map[types.NamespacedName]*claim{}, map[types.UID]*claim{}
	}
	by := &claim{pod, path}
	c.names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = by
	c.uids[pod.UID] = by
}

// desired is what all manifests together want: the documents in force, by file name. Of two pods with the same name, or the
// same UID, the first is wanted and the other is a problem, except that a file which seems to be gone yields to
// any other without a word: its pod has most likely been moved there.
func desired(files map[string]*entry) ([]*v1.Pod, []messages.ManifestProblem) {
	sorted := slices.SortedFunc(maps.Values(files), func(a, b *entry) int { return cmp.Compare(a.path, b.path) })
	sorted = slices.DeleteFunc(sorted, func(m *entry) bool { return m.withheld })
	var taken claims
	wanted := make(map[*v1.Pod]bool, len(sorted))
	lost := map[*entry][]messages.ManifestProblem{}
	enter := func(m *entry, silently bool) {
		for _, d := range m.documents {
			r := taken.rival(d.Pod)
			switch {
			case r == nil:
				taken.claim(d.Pod, m.path)
				wanted[d.Pod] = true
			case !silently:
				lost[m] = append(lost[m], rivalry(m.path, d.Pod, r))
			}
		}
	}
	for _, m := range sorted {
		if !m.vanishing() {
			enter(m, false)
		}
	}
	for _, m := range sorted {
		if m.vanishing() {
			enter(m, true)
		}
	}
	var pods []*v1.Pod
	var problems []messages.ManifestProblem
	for _, m := range sorted {
		for _, d := range m.documents {
			if wanted[d.Pod] {
				pods = append(pods, d.Pod)
			}
		}
		problems = append(append(problems, m.problems...), lost[m]...)
	}
	return pods, problems
}

func (m *entry) vanishing() bool { return m.trial != nil && m.trial.grade == gone }

func rivalry(path string, pod *v1.Pod, first *claim) messages.ManifestProblem {
	what, field := fmt.Sprintf("a pod %s/%s", pod.Namespace, pod.Name), "metadata.name"
	if first.pod.Name != pod.Name || first.pod.Namespace != pod.Namespace {
		what = fmt.Sprintf("a pod with the UID %s, %s/%s", pod.UID, first.pod.Namespace, first.pod.Name)
		field = "metadata.uid"
	}
	where := "by " + first.path + ", which comes first"
	if first.path == path {
		where = "earlier in this file"
	}
	return messages.ManifestProblem{
		Path: path, Pod: pod.Namespace + "/" + pod.Name, Field: field,
		Message: fmt.Sprintf("%s is named %s: this one is left out", what, where),
	}
}
