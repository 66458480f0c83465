package eviction

import (
	"cmp"
	"strings"
)

// Layout maps images and writable layers to file systems, by their names in signals: nodefs, imagefs or containerfs. Empty means
// nodefs. Logs and volumes are always on nodefs.
type Layout struct{ Images, Containers string }

const (
	onNodeFs      = "nodefs"
	onImageFs     = "imagefs"
	onContainerFs = "containerfs"
)

// layoutOf distinguishes file systems by their devices.
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

// contents are the kinds of data on one file system.
type contents struct {
	images bool
	layers bool // the containers' writable layers
	files  bool // logs, and volumes on the node's disk
}

// on returns the contents of the file system behind a disk signal.
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

// dead reports whether dead containers use space there: a writable layer or a log.
func (c contents) dead() bool { return c.layers || c.files }
