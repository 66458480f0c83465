// Package kinds has the local kinds of volumes, and nfs. Each kind is one file (emptydir.go, hostpath.go) and one line of the
// list All.
// The kinds of persistent volumes are in the package persistent. layout.go has the folder of a pod with its volumes, mounts.go
// the mounts there.
//
// Limits. An emptyDir in memory is as large as its sizeLimit. On the disk, eviction enforces the limit.
//
// Content (content.go). objects.go decides which files a volume has. write.go writes them so that they change all at once. A
// container that mounts an absent key by subPath gets an empty folder, which stays in place of the key.
//
// Tokens of service accounts are requested by the mount that writes them. They are bound to the pod and kept in memory until
// the pod's volumes are unmounted. A token is renewed after four fifths of its life, or after a day. If that fails, the old one
// stays in place. Certificates of pods (package podcert) are alike. The certificates of ClusterTrustBundles (package trust) are
// written again when a bundle has changed, with the next sweep of the actor.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
	"github.com/playlet-dev/playlet/actors/volumes/podcert"
	"github.com/playlet-dev/playlet/actors/volumes/trust"
)

// Facts describes the machine to the kinds of volumes. It is immutable.
type Facts struct {
	// Allocatable is the resources of the machine for pods; zero: unknown. It limits volumes in memory, and is the value that
	// the downward API has for limits that are not set.
	Allocatable v1.ResourceList
	// Objects has the ConfigMaps and Secrets; nil if this node has none.
	Objects *objectset.Board
	// Tokens provides service account tokens; nil without an API server.
	Tokens Tokens
	// Bundles has the ClusterTrustBundles; nil without an API server, or if the feature gate is off.
	Bundles *trust.Source
	// Certificates provides the certificates of pods; nil without an API server, or if the feature gate is off.
	Certificates *podcert.Source
	// StaticStay is set if no static pod is ever evicted, even if it fills an emptyDir.
	StaticStay bool
	// NFS mounts nfs volumes; nil: they are not supported.
	NFS *nfs.Mounter
	// Log receives the messages of operations, which run outside any actor.
	Log *slog.Logger
}

// Forget drops the tokens and certificates of a pod at its end, and cancels pending requests for tokens. It does not block.
func (f Facts) Forget(pod types.UID) {
	if f.Tokens != nil {
		f.Tokens.Forget(pod)
	}
	f.Certificates.Forget(pod)
}

// VersionOf returns a number that increases when an object that a volume of the pod has as its content may have changed.
func (f Facts) VersionOf(pod *v1.Pod) uint64 {
	version := f.Objects.VersionOf(pod)
	if pod != nil && AnyHolds(pod, ofBundles) {
		version += f.Bundles.Version()
	}
	return version
}

// Plugin is one kind of volume. Its methods may be called at any time and concurrently for different volumes. For one volume
// Mount and Unmount never run at the same time. The methods do I/O, and return when ctx ends if they can.
type Plugin interface {
	// Name returns the kubelet's name for the kind, e.g. "kubernetes.io/empty-dir". Folders on the disk are named after it.
	Name() string
	// Handles reports whether the volume is of this kind.
	Handles(v *v1.Volume) bool
	// Mount makes the volume ready and returns its path on the host. It must be idempotent, even after a crash at any point. An
	// error that a retry cannot fix is a Permanent one.
	Mount(ctx context.Context, p Folder, v *v1.Volume) (string, error)
	// Mounted reports whether the volume is still as Mount left it. It must be cheap.
	Mounted(p Folder, v *v1.Volume) bool
	// InMemory reports whether Mount may have mounted a file system of memory on the folder of the volume with this name.
	InMemory(p Folder, volume string) bool
	// Unmount undoes the volume with this name and removes its content. It has no information but the disk, and must be
	// idempotent. It is never called for kinds that leave nothing in the pod's folder.
	Unmount(ctx context.Context, p Folder, volume string) error
}

// BareKind is a kind that leaves nothing of its own in the pod's folder.
type BareKind struct{}

// InMemory implements Plugin.
func (BareKind) InMemory(Folder, string) bool { return false }

// Unmount implements Plugin.
func (BareKind) Unmount(context.Context, Folder, string) error { return nil }

// Mounter is a plugin whose volumes are mounted by others, or are any file system.
type Mounter interface {
	// MountsAt returns the path in the pod's folder on which the volume with this name is mounted.
	MountsAt(volume string) string
}

// All returns the kinds of this package.
func All() []Plugin {
	return []Plugin{
		emptyDir{},
		HostPath{},
		content{"kubernetes.io/configmap", false},
		content{"kubernetes.io/secret", true},
		content{"kubernetes.io/downward-api", true},
		content{"kubernetes.io/projected", true},
		nfsVolume{},
	}
}

// permanentError is a failure that a retry cannot fix until the pod changes.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent returns an error that a retry cannot fix until the pod changes.
func Permanent(format string, args ...any) error { return permanentError{fmt.Errorf(format, args...)} }

// IsPermanent reports whether an error is or wraps such an error.
func IsPermanent(err error) bool {
	_, is := errors.AsType[permanentError](err)
	return is
}

// PluginFor returns the plugin of a volume. The error gives an unsupported kind the name that it has in the manifest.
func PluginFor(list []Plugin, v *v1.Volume) (Plugin, error) {
	for _, p := range list {
		if p.Handles(v) {
			return p, nil
		}
	}
	return nil, Permanent("volumes of the kind %q are not supported", podspec.VolumeKind(v))
}
