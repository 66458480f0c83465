package persistent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// normalWait is how long attaching a volume takes normally. After that the kubelet, too, records an Event.
const normalWait = 2 * time.Minute

// attachmentName returns the name that a VolumeAttachment gets from its creator.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// attachment returns the attacher's metadata of the volume. First the Node has to list the volume as in use, so that it is not
// detached from then on, and as attached. Both are the kubelet's conditions. A node may read VolumeAttachments but not watch
// them, so the attachment is read once the Node shows it.
func (j *job) attachment(ctx context.Context) (map[string]string, error) {
	unique, s, driver := uniqueName(j.record), j.Storage, j.record.Driver
	attaching := messages.Cause{Code: messages.CauseNotAttached, Name: j.record.Volume}
	unattached := attaching.Errorf("volume %s of CSI driver %s is not attached to this node yet", j.record.Volume, driver)
	needless := func() bool { spec, known := s.objects.spec(driver); return known && !attaches(spec) }
	w := s.onNode(j.p, j.name, unique, attaching, unattached, needless)
	if w.Err != nil && w.Normal {
		return nil, w
	}
	called := object{"VolumeAttachment", j.record.Attached}
	a, err := fetch(ctx, nil, called, j.Client.StorageV1().VolumeAttachments().Get, j.record.Attached)
	switch {
	case err != nil && w.Err != nil: // a node may not read a missing attachment either
		return nil, w
	case kinds.IsWait(err):
		w.Err = err
		return nil, w
	case err != nil:
		return nil, err
	case a.DeletionTimestamp != nil:
		w.Err = attaching.Errorf("%s is being deleted", called)
	case !a.Status.Attached && a.Status.AttachError != nil:
		cause := attaching
		if s.exhausted(ctx, driver, a.Status.AttachError) {
			cause.Code = messages.CauseAttachLimit
		}
		why := a.Status.AttachError.Message
		w.Err, w.Normal = cause.Errorf("volume %s cannot be attached: %s", j.record.Volume, why), false
	case !a.Status.Attached:
		w.Err = unattached
	}
	if w.Err != nil {
		return nil, w
	}
	j.change(j.p.Pod.UID, j.name, func(h *podVolume) { h.waits = time.Time{} })
	return a.Status.AttachmentMetadata, nil
}

// onNode returns the wait of a pod's volume for the Node, which has to list its unique name as in use and as attached. Its error
// is nil if the Node does, and unattached if it is not attached. needless reports, without I/O, whether attaching is not needed.
func (s *Storage) onNode(
	p kinds.Folder, volume, unique string, attaching messages.Cause, unattached error, needless func() bool,
) (w kinds.WaitError) {
	s.change(p.Pod.UID, volume, func(h *podVolume) {
		if h.wants = unique; h.waits.IsZero() {
			h.waits = time.Now()
		}
	})
	h, _ := s.lookUp(p.Pod.UID, volume)
	late := h.waits.Add(normalWait)
	if w.Normal = time.Now().Before(late); w.Normal {
		p.RenewAt(late)
	}
	switch node := s.node.Load(); {
	case !inUseOn(node, unique):
		w.Err = attaching.Errorf("the volume is not among volumesInUse of the Node yet")
		w.Over = func() bool { return inUseOn(s.node.Load(), unique) || needless() }
	case !attachedTo(node, unique):
		w.Err, w.Over = unattached, func() bool { return attachedTo(s.node.Load(), unique) || needless() }
	}
	return w
}

// exhausted reports whether an attachment failed because the node has no place for another volume of the driver. The limit that
// the scheduler knows is wrong then, and is read again at once (KEP-4876).
func (s *Storage) exhausted(ctx context.Context, driver string, failed *storagev1.VolumeError) bool {
	if failed.ErrorCode == nil || codes.Code(*failed.ErrorCode) != codes.ResourceExhausted { //nolint:gosec // a code of gRPC
		return false
	}
	spec, err := s.driverObject(ctx, driver)
	if err != nil || !limitChanges(spec) {
		return false
	}
	if err := s.Drivers.ReadLimit(ctx, driver); err != nil {
		s.Log.Warn("the limit of volumes could not be read again", "driver", driver, "error", err)
	}
	return true
}

// inUseOn reports whether the Node lists the volume as in use, so that it is not detached.
func inUseOn(node *v1.Node, name string) bool {
	return node != nil && slices.Contains(node.Status.VolumesInUse, v1.UniqueVolumeName(name))
}

// attachedTo reports whether the Node lists the volume as attached.
func attachedTo(node *v1.Node, name string) bool {
	return node != nil && slices.ContainsFunc(node.Status.VolumesAttached,
		func(a v1.AttachedVolume) bool { return a.Name == v1.UniqueVolumeName(name) })
}

// mayBeAttached reports whether a record's volume is attached to the node, or may be.
func (s *Storage) mayBeAttached(ctx context.Context, r csi.Record) bool {
	if r.Lifecycle == string(storagev1.VolumeLifecycleEphemeral) {
		return false
	}
	s.mu.Lock()
	is, known := s.attachable[r.Driver]
	s.mu.Unlock()
	if known {
		return is
	}
	spec, err := s.driverObject(ctx, r.Driver)
	return err != nil || attaches(spec)
}
