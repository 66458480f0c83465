// Package kinds has the kinds of volume, each with what it does on the machine: one file (emptydir.go, hostpath.go) and one
// line of the list All. The kinds of persistent volumes are in the package persistent. layout.go is the
// folder of a pod, in which volumes lie, mounts.go what is mounted there.
//
// Limits. An emptyDir in memory is as large as its sizeLimit. On disk the limit is for eviction to hold.
//
// Content (content.go). objects.go decides which files a volume has, write.go writes them so that they change all at once. A
// container that mounts an absent key by subPath gets an empty folder, which stays in place of the key.
//
// Tokens of service accounts are requested by the mount that writes them. They are bound to the pod and kept in memory
// until the pod's volumes are unmounted. A token is renewed when four fifths of its life, or a day, are over. If that
// fails the old one stays in place.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// Facts are what volumes need to know of the machine. Immutable.
type Facts struct {
	// Allocatable is what pods can have of the machine; zero stands for not known. It bounds what lies in memory, and is
	// what the downward API says of limits that are not set.
	Allocatable v1.ResourceList
	// Objects are the ConfigMaps and Secrets; nil where this node has none.
	Objects *objectset.Board
	// Tokens gives service account tokens; nil where there is no API server.
	Tokens Tokens
	// StaticStay says that no static pod is evicted, whatever it writes to an emptyDir.
	StaticStay bool
	// Log gets what happens in operations, outside any actor.
	Log *slog.Logger
}

// Plugin is one kind of volume. All its methods may be called at any time and by several goroutines, for different
// volumes; for one volume Mount and Unmount never run side by side. They do I/O, and give up with ctx where they can.
type Plugin interface {
	// Name is the kubelet's, e.g. "kubernetes.io/empty-dir": folders on the disk are named after it.
	Name() string
	// Handles says whether the volume is of this kind.
	Handles(v *v1.Volume) bool
	// Mount makes the volume ready and returns its path on the host. It must be idempotent, also after a crash at
	// any point in itself. An error that trying again cannot help is a Permanent one.
	Mount(ctx context.Context, p Folder, v *v1.Volume) (string, error)
	// Mounted says whether what Mount did is still there. It must be cheap.
	Mounted(p Folder, v *v1.Volume) bool
	// InMemory says whether Mount may have mounted a file system of memory on the folder of the volume with this name.
	InMemory(p Folder, volume string) bool
	// Unmount undoes the volume with this name and removes what it held. It has nothing to go by but the disk, and
	// must be idempotent. Kinds that leave nothing in the pod's folder are never asked.
	Unmount(ctx context.Context, p Folder, volume string) error
}

// Bare is a kind that leaves nothing of its own in the pod's folder.
type Bare struct{}

// InMemory implements Plugin.
func (Bare) InMemory(Folder, string) bool { return false }

// Unmount implements Plugin.
func (Bare) Unmount(context.Context, Folder, string) error { return nil }

// Mounter is a plugin whose volumes are mounted by others, or are any file system.
type Mounter interface {
	// MountsAt is the path in the pod's folder on which the volume with this name is mounted.
	MountsAt(volume string) string
}

// All are the kinds of this package.
func All() []Plugin {
	return []Plugin{
		emptyDir{},
		HostPath{},
		content{"kubernetes.io/configmap", false},
		content{"kubernetes.io/secret", true},
		content{"kubernetes.io/downward-api", true},
		content{"kubernetes.io/projected", true},
	}
}

// permanentError is a failure that trying again cannot help, until the pod changes.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent makes one.
func Permanent(format string, args ...any) error { return permanentError{fmt.Errorf(format, args...)} }

// IsPermanent says that an error is one.
func IsPermanent(err error) bool {
	_, is := errors.AsType[permanentError](err)
	return is
}

// PluginFor finds the plugin of a volume; a kind that is not there is named as the manifest names it.
func PluginFor(list []Plugin, v *v1.Volume) (Plugin, error) {
	for _, p := range list {
		if p.Handles(v) {
			return p, nil
		}
	}
	return nil, Permanent("volumes of the kind %q are not supported", podspec.VolumeKind(v))
}
