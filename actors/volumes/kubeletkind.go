package volumes

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// pluginOf returns the plugin of a folder. A volume of a kind that only a kubelet has is unmounted, and kept if it holds data.
func (d disk) pluginOf(f kinds.FoundVolume) kinds.Plugin {
	for _, p := range d.plugins {
		if kinds.Escaped(p.Name()) == f.Plugin {
			return p
		}
	}
	return kubeletKind{name: f.Plugin}
}

// kubeletKind is a kind of volume that only a kubelet mounts, e.g. Fibre Channel.
type kubeletKind struct {
	kinds.BareKind
	name string // escaped, as in folder names
}

func (k kubeletKind) Name() string { return k.name }

func (kubeletKind) Handles(*v1.Volume) bool { return false }

func (k kubeletKind) Mount(context.Context, kinds.Folder, *v1.Volume) (string, error) {
	return "", kinds.Permanent("volumes of the kind %q are not supported", k.name)
}

func (kubeletKind) Mounted(kinds.Folder, *v1.Volume) bool { return false }

// MountsAt implements kinds.Mounter.
func (k kubeletKind) MountsAt(volume string) string { return kinds.VolumeFolder(k.name, volume) }

func (k kubeletKind) Unmount(ctx context.Context, p kinds.Folder, volume string) error {
	return kinds.RemoveMount(ctx, p, k.MountsAt(volume))
}
