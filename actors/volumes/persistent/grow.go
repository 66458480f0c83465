package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/messages"
)

// growEvery is the interval between reads of the claim of a mounted volume that its driver can grow. A node may get claims, but
// neither list nor watch them. The kubelet gets them with each sync of the pod, which is about as often.
const growEvery = time.Minute

// grow has the driver grow the file system of a volume, or its block device, to the size of the PersistentVolume if the claim
// leaves that to the node (KEP-284), and records the result in the claim (KEP-1790). The volume is published and may be in use.
// Drivers have to grow volumes in use in this way, so all volumes are grown in this way. grow may be cut off at any point: the
// claim leaves the growth to the node until the end, and a repeated call of the driver changes nothing. has is the size to which
// this process has grown the volume; 0: unknown.
func (j *job) grow(ctx context.Context, has int64) error {
	if j.claim == nil {
		return nil
	}
	driver, err := j.Drivers.Get(j.record.Driver)
	if err == nil && !driver.Can(csi.Grows) {
		return nil
	}
	j.p.RenewAt(time.Now().Add(growEvery + rand.N(growEvery/2))) //nolint:gosec // jitter spreads the reads
	wanted := sizeFor(j.claim, j.pv, has)
	note := func(size int64) { j.change(j.p.Pod.UID, j.name, func(h *podVolume) { h.size = size }) }
	switch {
	case j.readOnly: // as the kubelet: reported, once for each size
		if size := j.pv.Spec.Capacity.Storage().Value(); has < size && j.claim.Status.Capacity.Storage().Value() < size {
			j.p.Record(j.events(v1.EventTypeWarning, messages.EventVolumeReadOnly,
				"MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", j.pv.Name)...)
			note(size)
		}
	case err == nil && growsNow(j.claim, has, wanted.Value()):
		over := make(chan growth, 1) // stays empty if the call outlives this mount
		err := j.alone(ctx, j.key(), func(ctx context.Context) error {
			g, err := j.growNow(ctx, driver, has)
			over <- g
			return err
		})
		select {
		case g := <-over:
			j.p.Record(g.events...)
			if err == nil && g.size > 0 {
				note(g.size)
			}
		default:
		}
		if err != nil {
			return fmt.Errorf("the volume cannot be grown to %s: %w", wanted.String(), err)
		}
	case has == 0:
		note(j.claim.Status.Capacity.Storage().Value())
	}
	return nil
}

// wantedSize returns the size to which the volume should grow: the size that the resizer allocated, or the capacity of the
// volume if the resizer is an older one.
func wantedSize(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) resource.Quantity {
	if size, ok := c.Status.AllocatedResources[v1.ResourceStorage]; ok {
		return size
	}
	return pv.Spec.Capacity[v1.ResourceStorage]
}

// sizeFor returns the next size of a volume. has is the size to which it has been grown here, in bytes. The next size is the
// size that the claim leaves to the node, or the size in the claim if another node has grown the volume. A larger size may not
// be available yet.
func sizeFor(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, has int64) resource.Quantity {
	wanted := wantedSize(c, pv)
	if !asksToGrow(c, wanted.Value()) && elsewhere(c, has) {
		return *c.Status.Capacity.Storage()
	}
	return wanted
}

// elsewhere reports whether another node with the volume has grown it beyond the size here (has, in bytes; 0: unknown), and has
// recorded that in the claim.
func elsewhere(c *v1.PersistentVolumeClaim, has int64) bool {
	return has > 0 && c.Status.Capacity.Storage().Value() > has &&
		slices.Contains(c.Spec.AccessModes, v1.ReadWriteMany) && !metav1.HasAnnotation(c.ObjectMeta, notRequired)
}

// notRequired is the annotation of a claim with a volume that nodes need not grow.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// growsNow reports whether to grow a volume to a size: the size here (has, in bytes; 0: unknown) is smaller, and the claim
// requests the growth or another node has done it.
func growsNow(c *v1.PersistentVolumeClaim, has, wanted int64) bool {
	return has < wanted && (asksToGrow(c, wanted) || elsewhere(c, has))
}

// asksToGrow reports whether the claim leaves it to the node to grow the volume to a size. Older resizers set no status.
func asksToGrow(c *v1.PersistentVolumeClaim, size int64) bool {
	if c.Status.Capacity.Storage().Value() >= size {
		return false
	}
	switch c.Status.AllocatedResourceStatuses[v1.ResourceStorage] {
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	case "":
		return c.Status.AllocatedResources == nil && hasCondition(c, v1.PersistentVolumeClaimFileSystemResizePending)
	}
	return false
}

func hasCondition(c *v1.PersistentVolumeClaim, of v1.PersistentVolumeClaimConditionType) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == of && c.Status == v1.ConditionTrue
	})
}

// growth is the result of a growth: the size for which it is complete (0: it is not), and its events.
type growth struct {
	size   int64
	events []messages.RecordEvent
}

// growNow has the driver grow the volume. No other operation on the volume is in progress on this node.
func (j *job) growNow(ctx context.Context, driver *csi.Driver, has int64) (g growth, err error) {
	claims := j.Client.CoreV1().PersistentVolumeClaims(j.claim.Namespace)
	called := object{"PersistentVolumeClaim", j.claim.Namespace + "/" + j.claim.Name}
	c, err := fetch(ctx, nil, called, claims.Get, j.claim.Name) // another pod's mount may have grown it meanwhile
	if err != nil {
		return g, err
	}
	size := sizeFor(c, j.pv, has)
	if !growsNow(c, has, size.Value()) {
		if c.Status.Capacity.Storage().Cmp(size) >= 0 {
			g.size = size.Value()
		}
		return g, nil
	}
	asks, status := asksToGrow(c, size.Value()), c.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	if asks && status == v1.PersistentVolumeClaimNodeResizePending {
		c, err = j.patchClaim(ctx, c, func(s *v1.PersistentVolumeClaimStatus) {
			s.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizeInProgress
		})
		if err != nil {
			return g, err
		}
	}
	v := j.volume
	v.Staging, v.Group, v.Secrets = j.stagingOf(driver), nil, nil
	if ref := j.pv.Spec.CSI.NodeExpandSecretRef; ref != nil {
		if v.Secrets, err = j.secret(ctx, *ref); err != nil {
			return g, err
		}
	}
	if err = driver.Grow(ctx, v, size.Value()); err != nil {
		g.events = j.events(v1.EventTypeWarning, messages.EventVolumeNotGrown,
			"NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", j.pv.Name, err)
		gaveUp, err := j.notGrown(ctx, c, size, asks, err)
		if gaveUp {
			g.size = size.Value()
		}
		return g, err
	}
	if asks {
		err = j.grown(ctx, c, size)
	}
	if err == nil { // otherwise the driver is called again, which changes nothing, and the event follows then
		g.size = size.Value()
		g.events = j.events(v1.EventTypeNormal, messages.EventVolumeGrown,
			"MountVolume.NodeExpandVolume succeeded for volume %q %s", j.pv.Name, j.NodeName)
	}
	return g, err
}

// grown records in the claim that the volume has the size.
func (j *job) grown(ctx context.Context, c *v1.PersistentVolumeClaim, size resource.Quantity) error {
	_, err := j.patchClaim(ctx, c, func(s *v1.PersistentVolumeClaimStatus) {
		if s.Capacity == nil {
			s.Capacity = v1.ResourceList{}
		}
		s.Capacity[v1.ResourceStorage] = size
		if delete(s.AllocatedResourceStatuses, v1.ResourceStorage); len(s.AllocatedResourceStatuses) == 0 {
			s.AllocatedResourceStatuses = nil
		}
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return slices.Contains([]v1.PersistentVolumeClaimConditionType{
				v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
				v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
			}, c.Type)
		})
	})
	return err
}

// notGrown records in the claim why the volume was not grown. If it returns an error, the pod has to wait. It returns none if a
// retry cannot help, or can help only once the volume is out of use. over is true in the latter case. A claim that was changed
// after a failure goes back to its resizer.
func (j *job) notGrown(
	ctx context.Context, c *v1.PersistentVolumeClaim, size resource.Quantity, asks bool, why error,
) (over bool, err error) {
	refusal, is := errors.AsType[csi.CallError](why)
	if !is || !refusal.Final() {
		return false, why
	}
	requested := c.Spec.Resources.Requests[v1.ResourceStorage]
	infeasible := refusal.Infeasible() || requested.Cmp(size) != 0 && hasCondition(c, v1.PersistentVolumeClaimNodeResizeError)
	if asks {
		condition := v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue,
			LastTransitionTime: metav1.Now(), Message: "failed to expand pvc with " + why.Error()}
		_, err := j.patchClaim(ctx, c, func(s *v1.PersistentVolumeClaimStatus) {
			s.Conditions = append(slices.DeleteFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
				return c.Type == condition.Type
			}), condition)
			if infeasible && s.AllocatedResourceStatuses != nil {
				s.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizeInfeasible
			}
		})
		if err != nil {
			return false, errors.Join(why, err)
		}
	}
	if inUse := refusal.Code == codes.FailedPrecondition; inUse || infeasible {
		return inUse && !infeasible, nil
	}
	return false, why
}

// patchClaim changes the claim's status. It fails if the claim has been changed meanwhile.
func (j *job) patchClaim(
	ctx context.Context, c *v1.PersistentVolumeClaim, change func(*v1.PersistentVolumeClaimStatus),
) (*v1.PersistentVolumeClaim, error) {
	was, is := c.DeepCopy(), c.DeepCopy()
	was.UID, was.ResourceVersion = "", "" // so that the patch has them
	change(&is.Status)
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	return j.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
}

// events returns the same event for the pod and for its claim.
func (j *job) events(kind, reason, format string, args ...any) []messages.RecordEvent {
	pod := messages.PodEvent(j.p.Pod, "", kind, reason, fmt.Sprintf(format, args...), time.Now())
	of := pod
	of.Object = v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: j.claim.Namespace,
		Name: j.claim.Name, UID: j.claim.UID, ResourceVersion: j.claim.ResourceVersion}
	return []messages.RecordEvent{pod, of}
}
