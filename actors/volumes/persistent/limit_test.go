package persistent_test

import (
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// changing returns a CSIDriver with an interval, in seconds, for reading its limit of volumes; 0: none.
func changing(every int64) *storagev1.CSIDriver {
	d := attachRequired(true)
	if every > 0 {
		d.Spec.NodeAllocatableUpdatePeriodSeconds = &every
	}
	return d
}

// limitOf returns the limit of the driver that registration received last, or -1.
func limitOf(n *node) int64 {
	n.Settle(false)
	limit := int64(-1)
	for _, sent := range n.Take() {
		if m, ok := sent.Msg.(messages.CSIDriversObserved); ok && len(m.Drivers) == 1 {
			limit = m.Drivers[0].MaxVolumes
		}
	}
	return limit
}

// A changed limit of volumes is read at the interval of the CSIDriver, and sent to registration. A driver that does not answer
// keeps its last limit. Without an interval the limit stays.
func TestLimit_ReadAtInterval(t *testing.T) {
	for _, every := range []int64{10, 0} {
		n := storageNode(t, changing(every))
		d := startDriver(t, n, &csitest.Driver{})
		eventually(t, func() bool { _, known := n.storage.DriverSpec(testDriver); return known })
		n.restart(t)
		n.Send(messages.Registration, messages.ServiceStarted{Service: messages.Registration})
		if got := limitOf(n); got != 7 {
			t.Fatalf("registration received limit %d, want 7", got)
		}
		d.Limit.Store(3)
		n.Advance(9 * time.Second)
		if got := limitOf(n); got != -1 {
			t.Errorf("before the interval registration received limit %d", got)
		}
		n.Advance(time.Second)
		limitOf(n)
		want := int64(3)
		if every == 0 {
			want = 7
		}
		if got, _ := n.storage.Drivers.Get(testDriver); got.MaxVolumes != want {
			t.Errorf("interval %d: the limit is %d, want %d", every, got.MaxVolumes, want)
		}
		d.Stop()
		if err := n.storage.Drivers.ReadLimit(t.Context(), testDriver); err == nil {
			t.Error("a driver that has stopped answered")
		}
	}
}

// An interval of centuries is a long one, and not a negative one.
func TestLimit_AbsurdInterval(t *testing.T) {
	for every, want := range map[int64]time.Duration{1: 10 * time.Second, 60: time.Minute, math.MaxInt64: 365 * 24 * time.Hour,
		9_999_999_999: 365 * 24 * time.Hour} {
		n := storageNode(t, changing(every))
		startDriver(t, n, &csitest.Driver{})
		eventually(t, func() bool { _, known := n.storage.DriverSpec(testDriver); return known })
		if got := n.storage.LimitPeriods()[testDriver]; got != want {
			t.Errorf("%d s: the interval is %s, want %s", every, got, want)
		}
	}
}

// An attachment that fails because the node is full has a cause of its own, and has the limit read again, if the driver's limit
// may change.
func TestLimit_Exhausted(t *testing.T) {
	exhausted := int32(codes.ResourceExhausted)
	other := int32(codes.Internal)
	for _, c := range []struct {
		every int64
		code  *int32
		cause messages.CauseCode
		limit int64
	}{
		{10, &exhausted, messages.CauseAttachLimit, 3},
		{0, &exhausted, messages.CauseNotAttached, 7},
		{10, &other, messages.CauseNotAttached, 7},
		{10, nil, messages.CauseNotAttached, 7},
	} {
		status := storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: c.code}}
		objects := append([]runtime.Object{changing(c.every), attachmentOf(status)}, bound("c", csiSource("h"))...)
		n := storageNode(t, objects...)
		d := startDriver(t, n, &csitest.Driver{})
		eventually(t, func() bool { _, known := n.storage.DriverSpec(testDriver); return known })
		d.Limit.Store(3)
		mount := messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))}
		n.Tell("a", mount)
		n.storage.EndNormalWait("a", "data")
		n.later()
		got, ok := n.Tell("a", mount)[0].(messages.VolumesFailed)
		if !ok || got.Quiet || got.Reason.Cause.Code != c.cause || got.Reason.Cause.Name != "pv-c" {
			t.Errorf("%+v: the pod received %+v", c, got)
		}
		if one, _ := n.storage.Drivers.Get(testDriver); one.MaxVolumes != c.limit {
			t.Errorf("%+v: the limit is %d, want %d", c, one.MaxVolumes, c.limit)
		}
		n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	}
}
