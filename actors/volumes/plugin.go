package volumes

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// plugin is one kind of volume. All its methods may be called at any time and by several goroutines, for different
// volumes; for one volume mount and unmount never run side by side. They do I/O, and give up with ctx where they can.
type plugin interface {
	// name is the kubelet's, e.g. "kubernetes.io/empty-dir": folders on the disk are named after it.
	name() string
	// handles says whether the volume is of this kind.
	handles(v *v1.Volume) bool
	// mount makes the volume ready and returns its path on the host. It must be idempotent, also after a crash at
	// any point in itself. An error that trying again cannot help is a permanentError.
	mount(ctx context.Context, p podFolder, v *v1.Volume) (string, error)
	// mounted says whether what mount did is still there. It must be cheap.
	mounted(p podFolder, v *v1.Volume) bool
	// inMemory says whether mount may have mounted a file system of memory on the folder of the volume with this name.
	inMemory(p podFolder, volume string) bool
	// unmount undoes the volume with this name and removes what it held. It has nothing to go by but the disk, and
	// must be idempotent. Kinds that leave nothing in the pod's folder are never asked.
	unmount(ctx context.Context, p podFolder, volume string) error
}

// bare is a kind that leaves nothing of its own in the pod's folder.
type bare struct{}

func (bare) inMemory(podFolder, string) bool { return false }

func (bare) unmount(context.Context, podFolder, string) error { return nil }

// mounter is a plugin whose volumes are mounted by others, or are any file system.
type mounter interface {
	// mountsAt is the path in the pod's folder on which the volume with this name is mounted.
	mountsAt(volume string) string
}

// plugins is the list of all kinds.
func plugins(s *Storage) []plugin {
	return []plugin{
		emptyDir{},
		hostPath{},
		content{"kubernetes.io/configmap", false},
		content{"kubernetes.io/secret", true},
		content{"kubernetes.io/downward-api", true},
		content{"kubernetes.io/projected", true},
		claim{s: s},
		csiVolume{s: s},
		local{s: s},
	}
}

// permanentError is a failure that trying again cannot help, until the pod changes.
type permanentError struct{ error }

func permanent(format string, args ...any) error { return permanentError{fmt.Errorf(format, args...)} }

func isPermanent(err error) bool {
	_, is := errors.AsType[permanentError](err)
	return is
}

// pluginFor finds the plugin of a volume; a kind that is not there is named as the manifest names it.
func pluginFor(list []plugin, v *v1.Volume) (plugin, error) {
	for _, p := range list {
		if p.handles(v) {
			return p, nil
		}
	}
	return nil, permanent("volumes of the kind %q are not supported", podspec.VolumeKind(v))
}
