package file

import (
	"fmt"
	"slices"

	"github.com/playlet-dev/playlet/actors/sources/base"
)

// lastGood is what is in force of all manifests, as it is kept on disk. It is immutable.
type lastGood struct {
	// Path and NodeName are what it holds for: pods of another folder or another node are of no use.
	Path      string          `json:"path"`
	NodeName  string          `json:"nodeName"`
	Manifests []savedManifest `json:"manifests"`
	// Holders are the paths of the manifests that have a pod's name, by namespace/name.
	Holders map[string]string `json:"holders,omitempty"`
	// Gone are the UIDs of pods that left the manifests and may still run.
	Gone map[string]bool `json:"gone,omitempty"`
}

// savedManifest is what is in force of one manifest that names pods.
type savedManifest struct {
	Path      string     `json:"path"`
	Count     int        `json:"count"` // of documents, as they were last
	Documents []document `json:"documents"`
}

// collect gathers what is in force, by file name.
func collect(path, node string, files map[string]*entry, holders map[string]string, gone map[string]bool) *lastGood {
	out := &lastGood{Path: path, NodeName: node, Manifests: []savedManifest{}, Holders: holders, Gone: gone}
	for _, m := range byPath(files) {
		if len(m.documents) > 0 {
			out.Manifests = append(out.Manifests, savedManifest{m.path, m.count, m.documents})
		}
	}
	return out
}

// load reads what was kept in dir for path and node; nil when that is nothing. An error is not a reason not to go on.
func load(dir, path, node string) (*lastGood, error) {
	g := new(lastGood)
	found, err := base.Load(dir, g)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the last good versions of broken manifests are lost: %w", err)
	case !found, g.Path != path, g.NodeName != node:
		return nil, nil
	}
	for _, m := range g.Manifests {
		if slices.ContainsFunc(m.Documents, func(d document) bool { return d.Pod == nil }) {
			return nil, fmt.Errorf("the last good version of %s is lost: its checkpoint has no pod", m.Path)
		}
	}
	return g, nil
}
