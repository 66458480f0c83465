package pullrecord

import (
	"slices"
	"strings"
)

// Name is the repository of an image, without tag and digest.
type Name struct {
	// Written is as the pod's author wrote it: "alpine". Records and the allowlist go by this, as the kubelet's do.
	Written string
	// Full is with its registry: "docker.io/library/alpine". This agent's records were kept by this once.
	Full string
}

// NameOf is for an image as a pod names it, or as the runtime is given it, and for its repository with its registry.
func NameOf(image, full string) Name {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return Name{image, full}
}

// keys are what records may have it by, none twice.
func (n Name) keys() []string { return slices.Compact([]string{n.Written, n.Full}) }

// latest is the tag of an image whose name has none.
const latest = ":latest"

// spellings are the names that pods may have for an image that the runtime is given by this one: the kubelet notes pulls by the
// pod's, and this agent cannot tell whether its author wrote the tag.
func spellings(image string) []string {
	if short, is := strings.CutSuffix(image, latest); is && !strings.Contains(image, "@") {
		return []string{image, short}
	}
	return []string{image}
}
