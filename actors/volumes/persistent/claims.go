package persistent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	storage "k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// claim is a volume that the pod has by a PersistentVolumeClaim: a claim that it names, or one that was made for it
// [ephemeral]. The PersistentVolume that is bound to the claim has a kind of its own. That kind does the work and finds the
// volume on the disk later.
type claim struct{ kind }

func (claim) Name() string { return "kubernetes.io/persistent-claim" }

func (claim) Handles(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

func (c claim) Mount(ctx context.Context, p kinds.Folder, v *v1.Volume) (string, error) {
	if c.s == nil || !objectset.OfAPIServer(p.Pod) {
		return "", kinds.Permanent("claims need an API server")
	}
	path, err := c.s.mountClaim(ctx, p, v)
	if path, err = c.s.keepMounted(p, v.Name, path, err); err == nil {
		c.s.setGroup(p, v.Name)
	}
	return path, err
}

func (s *Storage) mountClaim(ctx context.Context, p kinds.Folder, v *v1.Volume) (path string, err error) {
	h, _ := s.lookUp(p.Pod.UID, v.Name)
	c, pv := h.claim, h.pv // as read when the volume began to wait
	if pv == nil {
		if c, pv, err = s.volumeOf(ctx, p.Pod, v); err != nil {
			return "", err
		}
	}
	defer func() {
		s.cacheClaim(p.Pod.UID, v.Name, c, pv, err)
		s.recordGroup(p, v.Name, pv)
	}()
	unlock, err := s.lockPlace(ctx, string(p.Pod.UID)+"/"+pv.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	readOnly := mountsReadOnly(p.Pod, podspec.ClaimOf(p.Pod, v))
	switch {
	case pv.Spec.CSI != nil:
		return s.publish(ctx, p, v.Name, volumeSource{pv: pv, claim: c, readOnly: readOnly,
			migrated: metav1.HasAnnotation(pv.ObjectMeta, migratedTo)})
	case pv.Spec.Local != nil && isBlock(pv):
		return s.mapLocal(ctx, p, v.Name, pv)
	case pv.Spec.Local != nil:
		return s.bindLocal(ctx, p, v.Name, pv, readOnly)
	case pv.Spec.NFS != nil && !isBlock(pv):
		return s.mountNFS(ctx, p, v.Name, pv, readOnly)
	case pv.Spec.ISCSI != nil && !isBlock(pv):
		return s.mountISCSI(ctx, p, v.Name, iscsi.OfVolume(pv, readOnly))
	case pv.Spec.HostPath != nil:
		s.change(p.Pod.UID, v.Name, func(h *podVolume) { h.folder = "" })
		host := v1.VolumeSource{HostPath: pv.Spec.HostPath}
		p.SetPlugin(kinds.HostPath{}.Name(), false)
		return kinds.HostPath{}.Mount(ctx, p, &v1.Volume{Name: v.Name, VolumeSource: host})
	}
	return "", kinds.Permanent("PersistentVolume %s is of a kind that is not supported: "+
		"csi, what became csi, nfs, iscsi, local and hostPath are", pv.Name)
}

// mountsReadOnly reports whether the one mount of a claim in the pod is read-only: all volumes with the claim are. Containers
// mount each volume as it requests.
func mountsReadOnly(pod *v1.Pod, claim string) bool {
	return !slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		own := v.PersistentVolumeClaim
		return podspec.ClaimOf(pod, &v) == claim && (own == nil || !own.ReadOnly)
	})
}

// migratedTo is the Kubernetes annotation that names the CSI driver for a volume of a former in-tree kind.
const migratedTo = "pv.kubernetes.io/migrated-to"

// cacheClaim keeps a claim and its volume while a mount waits for others alone, so that they are read once.
func (s *Storage) cacheClaim(uid types.UID, volume string, c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, err error) {
	if _, known := s.lookUp(uid, volume); !known {
		return
	}
	if !kinds.IsNormalWait(err) {
		c, pv = nil, nil
	}
	s.change(uid, volume, func(h *podVolume) { h.claim, h.pv = c, pv })
}

// isMounted reports whether a volume is mounted where it was mounted last. A hostPath has no place of its own, and counts as
// mounted.
func (s *Storage) isMounted(p kinds.Folder, volume string) bool {
	h, known := s.lookUp(p.Pod.UID, volume)
	if h.folder == "" {
		return known
	}
	if strings.HasPrefix(h.folder, csi.DevicesFolder+"/") {
		return s.isMapped(p, h.folder)
	}
	is, err := p.IsMountPoint(h.folder)
	return err == nil && is
}

// pending returns the cause of a claim or volume that cannot be used yet.
func (o object) pending() messages.Cause {
	return messages.Cause{Code: messages.CauseClaimPending, Kind: o.kind, Name: o.name}
}

// volumeOf returns the pod's claim and the volume that is bound to it, after the kubelet's checks.
func (s *Storage) volumeOf(
	ctx context.Context, pod *v1.Pod, v *v1.Volume,
) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	name := podspec.ClaimOf(pod, v)
	called := object{"PersistentVolumeClaim", pod.Namespace + "/" + name}
	c, err := fetch(ctx, pod, called, s.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get, name)
	switch {
	case err != nil:
		return nil, nil, err
	case v.Ephemeral != nil && ephemeral.VolumeIsForPod(pod, c) != nil:
		return nil, nil, called.pending().Errorf("%s was not made for this pod, and is another's", called)
	case c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection"):
		return nil, nil, kinds.Wait(called.pending(), "%s is being deleted", called)
	case c.Status.Phase != v1.ClaimBound || c.Spec.VolumeName == "":
		return nil, nil, kinds.Wait(called.pending(), "%s is not bound to a volume yet", called)
	}
	called = object{"PersistentVolume", c.Spec.VolumeName}
	pv, err := fetch(ctx, pod, called, s.Client.CoreV1().PersistentVolumes().Get, c.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, nil, err
	case inTree.IsPVMigratable(pv):
		if pv, err = inTree.TranslateInTreePVToCSI(klog.Logger{}, pv); err != nil {
			return nil, nil, fmt.Errorf("%s cannot be translated to one of CSI: %w", called, err)
		}
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, migratedTo, pv.Spec.CSI.Driver) // it is a copy
	}
	switch {
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID:
		return nil, nil, kinds.Wait(called.pending(), "%s is not bound to this claim, although the claim names it", called)
	}
	if err := checkMode(pod, v.Name, pv); err != nil {
		return nil, nil, err
	}
	if err := safepath.CheckElement(pv.Name); err != nil {
		return nil, nil, kinds.Permanent("%w", err)
	}
	if node := s.node.Load(); node != nil {
		if err := storage.CheckNodeAffinity(pv, node.Labels); err != nil {
			return nil, nil, called.pending().Errorf("%s is not for this node: %w", called, err)
		}
	}
	return c, pv, nil
}
