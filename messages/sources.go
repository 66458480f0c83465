package messages

import v1 "k8s.io/api/core/v1"

// ManifestProblem is what is wrong with one manifest.
type ManifestProblem struct {
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"` // 1 is the first; 0 when not known
	Pod     string `json:"pod,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// KeptLast is true when the last good version of what the manifest named keeps running.
	KeptLast bool `json:"keptLast,omitempty"`
}

// SourcePodsWanted is the whole wish of one source: these pods, and no others of that source.
//
// Sender: a source. Receiver: pods. Reply: none.
// If lost: the source repeats its wish at every check and after ServiceStarted or TellWish.
type SourcePodsWanted struct {
	Source   Address
	Pods     []*v1.Pod // defaulted, validated, with UID; immutable
	Problems []ManifestProblem
	// Unknown says that it is not known yet what is wanted, and the Problems why: nothing may be taken from Pods.
	Unknown bool
}

// TellWish asks a source to tell its wish again.
//
// Sender: sources, for its children. Receiver: each source. Reply: SourcePodsWanted, to pods.
// If lost: the source's next check tells it anyway.
type TellWish struct{}
