package persistent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
)

// mountNFS mounts a PersistentVolume of an NFS server, unless it is mounted. Its place has the name of the PersistentVolume, as
// in the kubelet, and may therefore be the place of a volume of the pod's own.
func (s *Storage) mountNFS(
	ctx context.Context, p kinds.Folder, volume string, pv *v1.PersistentVolume, readOnly bool,
) (string, error) {
	if slices.ContainsFunc(p.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.NFS != nil && v.Name == pv.Name }) {
		return "", kinds.Permanent("the pod has another nfs volume with the name of PersistentVolume %s", pv.Name)
	}
	p.SetPlugin(nfs.PluginName, false)
	s.begin(p, volume, kinds.NFSFolder(pv.Name))
	path, err := kinds.MountNFS(ctx, p, pv.Name, nfs.OfVolume(pv, readOnly))
	if err == nil {
		s.change(p.Pod.UID, volume, func(h *podVolume) { h.progress = done })
	}
	return path, err
}
