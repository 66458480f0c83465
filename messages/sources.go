package messages

import v1 "k8s.io/api/core/v1"

// ManifestProblem is a fault in one manifest.
type ManifestProblem struct {
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"` // 1 is the first; 0 when not known
	Pod     string `json:"pod,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Warning is true when the pod runs all the same, without the named field.
	Warning bool `json:"warning,omitempty"`
	// KeptLast is true when the pod keeps running from the last good version of the manifest.
	KeptLast bool `json:"keptLast,omitempty"`
}

// SourcePodsWanted is the complete set of pods of one source.
//
// Sender: a source. Receiver: pods. Reply: none.
// If lost: the source repeats it at every check and after ServiceStarted or ResendDesired.
type SourcePodsWanted struct {
	Source   Address
	Pods     []*v1.Pod // defaulted, validated, with UID; immutable
	Problems []ManifestProblem
	// Graces are the grace periods, in seconds by UID, of removed pods where they differ from the pods' own.
	Graces map[string]int64
	// Unknown is true when the source cannot read its pods yet. Problems explain it, and the receiver ignores Pods.
	Unknown bool
	// Unread are the paths of the manifests that cannot be used at present. A running pod of this source may be theirs.
	Unread []string
	// Journal is the path of the records of a source that also records each pod that leaves it, in Gone. A running pod with the
	// source's mark that is neither in Pods nor in Gone has lost its record, and is left alone. Empty: no such records.
	Journal string
	// UnreadNames are the pods of Unread manifests, by path, as namespace/name without the node's name. A path is absent unless
	// all of its names are known. A running pod of another name is not the manifest's. Immutable.
	UnreadNames map[string][]string
	// Manifests are the paths of the manifests of Pods, by namespace/name, of a source that reads files. Immutable.
	Manifests map[string]string
	// Stale are the UIDs of Pods that come from an earlier version of a manifest; immutable. A running pod of such a name may be
	// of a later version, which cannot be read.
	Stale map[string]bool
	// Gone are the UIDs of pods that left the manifests and may still run; immutable. They end although a manifest is Unread.
	Gone map[string]bool
}

// ResendDesired asks a source to send its pods again.
//
// Sender: sources, for its children. Receiver: each source. Reply: SourcePodsWanted, to pods.
// If lost: the source's next check sends it anyway.
type ResendDesired struct{}
