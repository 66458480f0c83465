package eviction

import (
	"cmp"
	"strings"
)

// Layout says on which file system images and the writable layers of containers lie, by the names that signals have for file
// systems: nodefs, imagefs or containerfs. Empty is nodefs. Logs and volumes are always on nodefs.
type Layout struct{ Images, Containers string }

const (
	onNodeFs      = "nodefs"
	onImageFs     = "imagefs"
	onContainerFs = "containerfs"
)

// layoutOf tells file systems apart by their devices.
func layoutOf(node, images, containers disk) Layout {
	l := Layout{Images: onImageFs, Containers: onContainerFs}
	if images.device == node.device {
		l.Images = onNodeFs
	}
	switch containers.device {
	case node.device:
		l.Containers = onNodeFs
	case images.device:
		l.Containers = l.Images
	}
	return l
}

// contents are the kinds of things that lie on one file system.
type contents struct {
	images bool
	layers bool // what containers have written to their own file systems
	files  bool // logs, and volumes on the node's disk
}

// on is what lies on the file system of a signal of disks.
func (l Layout) on(s Signal) contents {
	images, containers := cmp.Or(l.Images, onNodeFs), cmp.Or(l.Containers, onNodeFs)
	fs, _, _ := strings.Cut(string(s), ".")
	switch fs {
	case onImageFs:
		fs = images
	case onContainerFs:
		fs = containers
	}
	return contents{images: images == fs, layers: containers == fs, files: fs == onNodeFs}
}

// dead says that dead containers hold something there: a writable layer, or a log.
func (c contents) dead() bool { return c.layers || c.files }
