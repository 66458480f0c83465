package eviction

import (
	"cmp"
	"strings"
)

// Layout maps images, writable layers and logs to file systems, by their names in signals: nodefs, imagefs or containerfs. Empty
// means nodefs. Volumes are always on nodefs.
type Layout struct{ Images, Containers, Logs string }

const (
	onNodeFs      = "nodefs"
	onImageFs     = "imagefs"
	onContainerFs = "containerfs"
	elsewhere     = "elsewhere" // on a file system without signals
)

// layoutOf distinguishes file systems by their devices. A file system of the logs counts as the node's if it has the same size:
// the subvolumes of one btrfs have different devices.
func layoutOf(node, images, containers, logs disk) Layout {
	l := Layout{Images: onImageFs, Containers: onContainerFs, Logs: elsewhere}
	if images.device == node.device {
		l.Images = onNodeFs
	}
	switch containers.device {
	case node.device:
		l.Containers = onNodeFs
	case images.device:
		l.Containers = l.Images
	}
	switch {
	case logs.device == node.device || logs.space.Capacity == node.space.Capacity:
		l.Logs = onNodeFs
	case logs.device == images.device:
		l.Logs = l.Images
	case logs.device == containers.device:
		l.Logs = l.Containers
	}
	return l
}

// contents are the kinds of data on one file system.
type contents struct {
	images bool
	layers bool // the containers' writable layers
	files  bool // volumes on the node's disk, and files that the agent keeps
	logs   bool
}

// on returns the contents of the file system behind a disk signal.
func (l Layout) on(s Signal) contents {
	images, containers, logs := cmp.Or(l.Images, onNodeFs), cmp.Or(l.Containers, onNodeFs), cmp.Or(l.Logs, onNodeFs)
	fs, _, _ := strings.Cut(string(s), ".")
	switch fs {
	case onImageFs:
		fs = images
	case onContainerFs:
		fs = containers
	}
	return contents{images: images == fs, layers: containers == fs, files: fs == onNodeFs, logs: logs == fs}
}

// dead reports whether dead containers use space there: a writable layer, a log, or a file that the agent keeps for a container.
func (c contents) dead() bool { return c.layers || c.files || c.logs }
