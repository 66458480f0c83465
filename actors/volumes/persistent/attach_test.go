package persistent_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

const uniqueTestName = v1.UniqueVolumeName("kubernetes.io/csi/" + testDriver + "^h")

func attachmentOf(status storagev1.VolumeAttachmentStatus) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: persistent.AttachmentName("h", testDriver, "n")}, Status: status}
}

// attachable returns a node with a driver that requires attachment, the attachment of volume h, and the claim c. It waits until
// the CSIDrivers are listed.
func attachable(t *testing.T, status storagev1.VolumeAttachmentStatus) (*node, *csitest.Driver) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(true), attachmentOf(status))...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	eventually(t, func() bool { _, known := n.storage.DriverSpec(testDriver); return known })
	return n, d
}

// observe sends the Node as registration does.
func (n *node) observe(uid string, status v1.NodeStatus) (toPod []any) {
	n.Send(messages.Registration, messages.NodeObserved{Node: &v1.Node{Status: status}})
	return n.Answers(uid)
}

// reads lists the objects that were read individually from the API server.
func (n *node) reads() (out []string) {
	for _, action := range n.storage.Client.(*fake.Clientset).Actions() {
		if action.GetVerb() == "get" {
			out = append(out, action.GetResource().Resource)
		}
	}
	slices.Sort(out)
	return out
}

// quietly reports whether the pod waits for this reason, without an Event.
func quietly(got []any, why string) bool {
	if len(got) != 1 {
		return false
	}
	m, ok := got[0].(messages.VolumesFailed)
	return ok && m.Quiet && strings.Contains(m.Reason.Message, why)
}

// A volume that has to be attached waits until the Node lists it, first as in use, then as attached. It never fails, is never
// retried by time, and takes three reads from the API server.
func TestFirstMountOfAnAttachedVolume(t *testing.T) {
	n, d := attachable(t, storagev1.VolumeAttachmentStatus{Attached: true})
	mount := messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))}
	waits := func(got []any, why string) {
		t.Helper()
		if !quietly(got, why) {
			t.Errorf("the pod received %+v, want a wait: %s", got, why)
		}
		if got := n.Tell("a", mount); len(d.Calls()) > 0 || !quietly(got, why) {
			t.Errorf("asked again: the pod received %+v, the driver %v", got, d.Calls())
		}
		n.Advance(time.Minute)
		if got := n.Answers("a"); len(got) > 0 {
			t.Errorf("while nothing changes the pod received %+v", got)
		}
	}
	waits(n.Tell("a", mount), "volumesInUse")
	inUse := v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{uniqueTestName}}
	waits(n.observe("a", inUse), "is not attached to this node yet")
	if got := n.observe("a", inUse); len(got) > 0 {
		t.Errorf("of a Node without news the pod received %+v", got)
	}
	inUse.VolumesAttached = []v1.AttachedVolume{{Name: uniqueTestName}}
	got := n.observe("a", inUse)
	if _, ok := got[len(got)-1].(messages.VolumesMounted); len(got) != 1 || !ok {
		t.Errorf("once it is attached the pod received %+v", got)
	}
	if got := n.reads(); !slices.Equal(got, []string{"persistentvolumeclaims", "persistentvolumes", "volumeattachments"}) {
		t.Errorf("read were %v", got)
	}
	if failed := n.actor.(supervisors.Inspector).Inspect().(reconcile.Inspection).Counters.Failed; failed > 0 {
		t.Errorf("%d operations failed", failed)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// A volume of a driver that requires no attachment is mounted once its CSIDriver is known, even if that is created late.
func TestCSIDriverThatComesLate(t *testing.T) {
	n := storageNode(t, bound("c", csiSource("h"))...)
	startDriver(t, n, &csitest.Driver{})
	eventually(t, func() bool { _, known := n.storage.DriverSpec(testDriver); return known })
	n.Settle(true) // the news so far
	got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	if !quietly(got, "volumesInUse") {
		t.Fatalf("without a CSIDriver the pod received %+v", got)
	}
	_, err := n.storage.Client.StorageV1().CSIDrivers().Create(t.Context(), attachRequired(false), metav1.CreateOptions{})
	must(t, err)
	eventually(t, func() bool { spec, _ := n.storage.DriverSpec(testDriver); return spec.AttachRequired != nil })
	n.Settle(true)
	got = n.Answers("a")
	if _, ok := got[len(got)-1].(messages.VolumesMounted); !ok {
		t.Errorf("with it the pod received %+v", got)
	}
	if names, err := n.storage.InUse(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("in use are %v, %v", names, err)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// A Node that lists the volume while the mount ends is not overlooked.
func TestNodeThatChangesDuringAMount(t *testing.T) {
	n, d := attachable(t, storagev1.VolumeAttachmentStatus{Attached: true})
	n.Send(messages.PodAddress("a"), messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	i := slices.IndexFunc(n.Work, func(w supervisors.Work) bool { return strings.HasPrefix(w.Name, "ensure volumes") })
	w := n.Work[i]
	n.Work = slices.Delete(n.Work, i, i+1)
	result := w.Run(t.Context())
	n.observe("a", v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{uniqueTestName},
		VolumesAttached: []v1.AttachedVolume{{Name: uniqueTestName}}})
	n.Send(messages.Volumes, result)
	got := n.Answers("a")
	if _, ok := got[len(got)-1].(messages.VolumesMounted); !ok || len(d.Calls()) != 2 {
		t.Errorf("the pod received %+v", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// A volume that is not attached within the normal time is a failure, once. The failure has the attacher's error.
func TestVolumeThatIsNotAttached(t *testing.T) {
	n, _ := attachable(t, storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no such disk"}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.storage.EndNormalWait("a", "data")
	n.later()
	failures := func() (out []messages.VolumesFailed) {
		n.Send(messages.PodAddress("a"), messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
		for _, m := range n.Answers("a") {
			out = append(out, m.(messages.VolumesFailed))
		}
		return out
	}
	got := failures()
	if len(got) != 1 || got[0].Quiet || !strings.Contains(got[0].Reason.Message, "cannot be attached: no such disk") {
		t.Fatalf("the pod received %+v", got)
	}
	n.Advance(kinds.Retry.Max)
	n.Answers("a")
	if got := failures(); len(got) != 1 || !got[0].Quiet {
		t.Errorf("of the same failure the pod received %+v", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// A forbidden read of the attachment does not hide the reason for the wait. A read of a missing attachment is forbidden, too.
func TestVolumeWithoutAnAttachment(t *testing.T) {
	n, _ := attachable(t, storagev1.VolumeAttachmentStatus{})
	n.storage.Client.(*fake.Clientset).PrependReactor("get", "volumeattachments",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no relationship found")
		})
	mount := messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))}
	n.Tell("a", mount)
	n.storage.EndNormalWait("a", "data")
	n.later()
	if m, ok := n.Tell("a", mount)[0].(messages.VolumesFailed); !ok || m.Quiet || m.Reason.Cause.Code != messages.CauseNotAttached ||
		m.Reason.Cause.Name != "pv-c" || !strings.Contains(m.Reason.Cause.Text, "volumesInUse") {
		t.Errorf("the pod received %+v", m)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// A second pod with a ReadWriteOncePod volume has the Event that Kubernetes' suite waits for. It gets the volume as soon as the
// first pod has ended.
func TestReadWriteOncePod_SecondPod(t *testing.T) {
	objects := append(bound("c", csiSource("h")), attachRequired(false))
	objects[1].(*v1.PersistentVolume).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	n := storageNode(t, objects...)
	startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	for _, uid := range []string{"a", "b"} {
		n.Send(messages.PodAddress(uid), messages.MountVolumes{UID: uid, Pod: volumestest.APIPodWith(uid, claimVolume("data", "c"))})
	}
	got := n.Answers("b")
	const words = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
	if m, ok := got[len(got)-1].(messages.VolumesFailed); !ok || m.Quiet || !strings.HasPrefix(m.Reason.Cause.Text, words) ||
		m.Reason.Cause.Detail != "a" {
		t.Fatalf("the second pod received %+v", got)
	}
	n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a", Remove: true})
	got = n.Answers("b")
	if _, ok := got[len(got)-1].(messages.VolumesMounted); !ok {
		t.Errorf("after the first pod the second received %+v", got)
	}
	n.Tell("b", messages.UnmountVolumes{UID: "b", Remove: true})
}

// The kubelet's Events of volumes are recorded: for a local volume that pods of two groups share, and for a volume that should
// grow and is mounted read-only.
func TestEventsOfVolumes(t *testing.T) {
	local := t.TempDir()
	grown := growing()
	grown[1].(*v1.PersistentVolume).Spec.Capacity = sized("2Gi")
	n := storageNode(t, append(grown, bound("l", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: local}})...)...)
	startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Grows}})
	eventsOf := func(uid string, volume v1.Volume, group int64) (out []string) {
		pod := volumestest.APIPodWith(uid, volume)
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		n.Send(messages.PodAddress(uid), messages.MountVolumes{UID: uid, Pod: pod})
		n.Settle(false)
		for _, sent := range n.Take() {
			if e, ok := sent.Msg.(messages.RecordEvent); ok {
				out = append(out, fmt.Sprintf("%s %s %s: %s", e.Object.Kind, e.Type, e.Reason, e.Message))
			}
		}
		return out
	}
	must(t, os.Chown(local, 0, 7))
	for _, c := range []struct {
		uid, want string
		group     int64
	}{{"a", "", 7}, {"b", "", 7}, {"c", "Pod Warning AlreadyMountedVolume: The requested fsGroup is 8, but the volume pv-l has GID 7. " +
		"The volume may not be shareable.", 8}} {
		if got := strings.Join(eventsOf(c.uid, claimVolume("data", "l"), c.group), "\n"); got != c.want {
			t.Errorf("pod %s has the Events %q, want %q", c.uid, got, c.want)
		}
	}
	readOnly := claimVolume("data", "c")
	readOnly.PersistentVolumeClaim.ReadOnly = true
	const refused = ` Warning FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv-c" requested read-only file system`
	if got := eventsOf("d", readOnly, 7); !slices.Equal(got, []string{"Pod" + refused, "PersistentVolumeClaim" + refused}) {
		t.Errorf("Events of a volume that is read-only: %q", got)
	}
	if got := n.later(); len(got) > 0 {
		t.Errorf("the Events are repeated: %v", got)
	}
	for _, uid := range []string{"a", "b", "c", "d"} {
		n.Tell(uid, messages.UnmountVolumes{UID: uid, Remove: true})
	}
}

// Metrics have the driver, its calls with their codes, and the total time that a pod waited.
func TestMetricsOfCSI(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	before := counts(t)
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	after := counts(t)
	const plugin = "kubernetes.io/csi:" + testDriver
	for _, key := range []string{
		"csi_operations_seconds " + testDriver + " OK /csi.v1.Node/NodePublishVolume false",
		"csi_operations_seconds " + testDriver + " OK /csi.v1.Node/NodeUnpublishVolume false",
		"volume_operation_total_seconds overall_volume_mount " + plugin,
		"storage_operation_duration_seconds false volume_mount success " + plugin,
		"storage_operation_duration_seconds false volume_unmount success " + plugin,
		"storage_operation_duration_seconds false unmount_device success " + plugin,
	} {
		if after[key] != before[key]+1 {
			t.Errorf("%s: %d observations, want %d", key, after[key], before[key]+1)
		}
	}
}

// counts returns the number of observations of each histogram, by name and label values.
func counts(t *testing.T) map[string]uint64 {
	t.Helper()
	families, err := prometheus.Gatherer(metrics.Registry).Gather()
	must(t, err)
	out := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			out[key] = m.GetHistogram().GetSampleCount()
		}
	}
	return out
}
