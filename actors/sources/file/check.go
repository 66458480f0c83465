package file

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// CheckResult is the result of reading the manifests at a path.
type CheckResult struct {
	Pods     []*v1.Pod
	Files    int
	Problems []messages.ManifestProblem
	// Several counts the documents and list items of each file with more than one. A kubelet reads the first document alone.
	Several map[string]int
}

// Check reads the manifests at path, a folder or a file, for such a node, without an agent.
func Check(path string, node base.Node) (CheckResult, error) {
	found, _, err := find(path)
	if err != nil {
		return CheckResult{}, err
	}
	parse := manifestParser(node, clock.RealClock{})
	entries, out := map[string]*entry{}, CheckResult{Several: map[string]int{}}
	for _, p := range slices.Sorted(maps.Keys(found)) {
		s := found[p]
		if s.err == nil && s.info.IsDir() {
			continue
		}
		data, err := []byte(nil), s.err
		if err == nil {
			data, err = readManifest(wholefile.Reading{Insist: true, Now: time.Now()}, s.real)
		}
		if entries[p] = (&entry{path: p, version: brokenBy(p, err)}); err == nil {
			entries[p].version = parse(p, data)
		}
		if n := entries[p].count; n > 1 {
			out.Several[p] = n
		}
	}
	out.Pods, out.Problems, _ = desired(entries, nil)
	out.Files = len(entries)
	return out, nil
}
