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

// Check reads the manifests at path, a folder or a file, for such a node, without an agent. It returns the pods, the number
// of files, and the problems.
func Check(path string, node base.Node) (pods []*v1.Pod, files int, problems []messages.ManifestProblem, err error) {
	found, _, err := find(path)
	if err != nil {
		return nil, 0, nil, err
	}
	parse := manifestParser(node, clock.RealClock{})
	entries := map[string]*entry{}
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
	}
	pods, problems, _ = desired(entries, nil)
	return pods, len(entries), problems, nil
}
