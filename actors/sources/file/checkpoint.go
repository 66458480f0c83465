package file

import (
	"fmt"
	"slices"

	"github.com/playlet-dev/playlet/actors/sources/base"
)

// lastGood is the checkpoint: the versions in force of all manifests. Immutable.
type lastGood struct {
	// Path and NodeName limit its validity: pods of another folder or node are ignored.
	Path      string          `json:"path"`
	NodeName  string          `json:"nodeName"`
	Manifests []savedManifest `json:"manifests"`
	// Boot is the boot of the machine for which the devices are valid.
	Boot string `json:"boot,omitempty"`
	// Holders are the paths of the manifests that have a pod's name, by namespace/name.
	Holders map[string]string `json:"holders,omitempty"`
	// Gone are the UIDs of pods that left the manifests and may still run.
	Gone map[string]bool `json:"gone,omitempty"`
}

// savedManifest is the version in force of a manifest that has pods.
type savedManifest struct {
	Path      string     `json:"path"`
	Count     int        `json:"count"` // of documents when last read
	Documents []document `json:"documents"`
	Device    uint64     `json:"device,omitempty"` // of its folder
}

// collect returns the versions in force, by file name.
func collect(path, node string, files map[string]*entry, holders map[string]string, gone map[string]bool) *lastGood {
	out := &lastGood{Path: path, NodeName: node, Manifests: []savedManifest{}, Boot: bootID(), Holders: holders, Gone: gone}
	for _, m := range byPath(files) {
		if len(m.documents) > 0 {
			out.Manifests = append(out.Manifests, savedManifest{m.path, m.count, m.documents, m.device})
		}
	}
	return out
}

// load reads the checkpoint in dir for path and node; nil if there is none. The caller can continue after an error.
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
