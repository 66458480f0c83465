package persistent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

func sized(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// growing returns a claim c with a volume of 1Gi.
func growing() []runtime.Object {
	objects := append(bound("c", csiSource("h")), attachRequired(false))
	objects[0].(*v1.PersistentVolumeClaim).Status.Capacity = sized("1Gi")
	objects[1].(*v1.PersistentVolume).Spec.Capacity = sized("1Gi")
	return objects
}

func (n *node) claim(t *testing.T) *v1.PersistentVolumeClaim {
	t.Helper()
	c, err := n.storage.Client.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "c", metav1.GetOptions{})
	must(t, err)
	return c
}

// enlarge acts as a resizer: the volume has 2Gi, and the claim leaves the file system to the node.
func (n *node) enlarge(t *testing.T) {
	t.Helper()
	client := n.storage.Client.CoreV1()
	pv, err := client.PersistentVolumes().Get(t.Context(), "pv-c", metav1.GetOptions{})
	must(t, err)
	pv.Spec.Capacity = sized("2Gi")
	_, err = client.PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{})
	must(t, err)
	c := n.claim(t)
	c.Spec.Resources.Requests = sized("2Gi")
	c.Status.AllocatedResources = sized("2Gi")
	c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
		v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	c.Status.Conditions = []v1.PersistentVolumeClaimCondition{
		{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}, {Type: "Another", Status: v1.ConditionTrue}}
	_, err = client.PersistentVolumeClaims("ns").Update(t.Context(), c, metav1.UpdateOptions{})
	must(t, err)
}

// later has the pod's volumes checked again, and returns the reasons of the recorded Events. Volumes are due by the machine's
// clock, and the actor has the test's clock.
func (n *node) later() (reasons []string) {
	n.Clock.SetTime(n.Now().Add(20 * 365 * 24 * time.Hour))
	n.Advance(0)
	n.Settle(false)
	for _, sent := range n.Take() {
		if e, ok := sent.Msg.(messages.RecordEvent); ok && sent.To == messages.Events {
			reasons = append(reasons, e.Object.Kind+" "+e.Reason)
		}
	}
	return reasons
}

// A volume in use is grown when its claim leaves that to the node, and only once. The claim records the result. The driver
// receives the same request as from the kubelet.
func TestAVolumeGrowsInUse(t *testing.T) {
	n := storageNode(t, growing()...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages, csi.Grows}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.later()
	calls := []string{"Stage h", "Publish h"}
	if got := d.Calls(); !slices.Equal(got, calls) {
		t.Fatalf("calls %v, and nobody asked for more", got)
	}
	n.enlarge(t)
	if got := n.later(); !slices.Equal(got, []string{"Pod FileSystemResizeSuccessful", "PersistentVolumeClaim FileSystemResizeSuccessful"}) {
		t.Errorf("events %v", got)
	}
	if got := d.Calls(); !slices.Equal(got, append(calls, "Expand h")) {
		t.Fatalf("calls %v", got)
	}
	s := n.storage
	r := d.Grown()[0]
	if r.GetVolumePath() != n.Pod("a/volumes/kubernetes.io~csi/pv-c/mount") || r.GetCapacityRange().GetRequiredBytes() != 2<<30 ||
		r.GetStagingTargetPath() != s.CSIFolder()+"/"+persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"})+"/globalmount" ||
		r.GetVolumeCapability().GetMount() == nil {
		t.Errorf("it was asked for %v", r)
	}
	c := n.claim(t).Status
	if c.Capacity.Storage().String() != "2Gi" || c.AllocatedResourceStatuses != nil || len(c.Conditions) != 1 ||
		c.Conditions[0].Type != "Another" || c.AllocatedResources.Storage().String() != "2Gi" {
		t.Errorf("the claim has %+v", c)
	}
	n.later()
	if got := d.Calls(); len(got) != 3 {
		t.Errorf("in the end %v", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// TestAGrowthIsReportedOnce expects the Event after the claim has the size. If the claim changes meanwhile, the driver is
// called again.
func TestAGrowthIsReportedOnce(t *testing.T) {
	n := storageNode(t, growing()...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Grows}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.enlarge(t)
	conflicts := 1
	n.storage.Client.(*fake.Clientset).PrependReactor("patch", "persistentvolumeclaims",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			if !strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), "capacity") || conflicts == 0 {
				return false, nil, nil
			}
			conflicts--
			return true, nil, apierrors.NewConflict(v1.Resource("persistentvolumeclaims"), "c", errors.New("changed"))
		})
	if got := n.later(); conflicts > 0 || len(got) > 0 {
		t.Errorf("before the claim has it, %v", got)
	}
	if got := n.later(); !slices.Equal(got, []string{"Pod FileSystemResizeSuccessful", "PersistentVolumeClaim FileSystemResizeSuccessful"}) {
		t.Errorf("once the claim has it, %v", got)
	}
	if got := d.Calls(); !slices.Equal(got, []string{"Publish h", "Expand h", "Expand h"}) {
		t.Errorf("calls %v", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// If the growth fails, a pod that starts waits, with the reason in its claim, and another process continues. A volume that can
// never grow, or not while it is in use, does not delay its pod.
func TestAVolumeThatDoesNotGrow(t *testing.T) {
	for _, c := range []struct {
		code   codes.Code
		waits  bool
		status v1.ClaimResourceStatus
		says   bool // the claim has the error
	}{
		{codes.Internal, true, v1.PersistentVolumeClaimNodeResizeInProgress, true},
		{codes.Unavailable, true, v1.PersistentVolumeClaimNodeResizeInProgress, false},
		{codes.OutOfRange, false, v1.PersistentVolumeClaimNodeResizeInfeasible, true},
		{codes.FailedPrecondition, false, v1.PersistentVolumeClaimNodeResizeInProgress, true},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			n := storageNode(t, growing()...)
			code := c.code
			d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Grows}, Fail: func(call string) error {
				if call != "Expand" || code == codes.OK {
					return nil
				}
				return status.Error(code, "no room")
			}})
			n.enlarge(t)
			mount := messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))}
			got := n.Tell("a", mount)
			failed, waits := got[len(got)-1].(messages.VolumesFailed)
			if waits != c.waits || waits && !strings.Contains(failed.Reason.Message, "the volume cannot be grown to 2Gi: CSI driver "+testDriver) {
				t.Errorf("the pod was told %+v", got)
			}
			is := n.claim(t)
			if s := is.Status.AllocatedResourceStatuses[v1.ResourceStorage]; s != c.status ||
				persistent.HasCondition(is, v1.PersistentVolumeClaimNodeResizeError) != c.says || is.Status.Capacity.Storage().String() != "1Gi" {
				t.Errorf("the claim has %+v", is.Status)
			}
			if code = codes.OK; !c.waits {
				n.later()
				if got := d.Calls(); !slices.Equal(got, []string{"Publish h", "Expand h"}) {
					t.Errorf("later %v", got)
				}
				if c.code == codes.OutOfRange { // the resizer tries a smaller size
					is := n.claim(t)
					is.Status.AllocatedResources = sized("1536Mi")
					is.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizePending
					_, err := n.storage.Client.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), is, metav1.UpdateOptions{})
					must(t, err)
					n.later()
					if got := n.claim(t).Status; got.Capacity.Storage().String() != "1536Mi" || len(d.Calls()) != 3 {
						t.Errorf("of less the claim has %+v, after %v", got, d.Calls())
					}
				}
			} else {
				n.storage.ForgetAll() // as in a new process
				n.restart(t)
				n.Tell("a", mount)
				if is := n.claim(t).Status; is.Capacity.Storage().String() != "2Gi" || len(is.Conditions) != 1 {
					t.Errorf("in the end the claim has %+v", is)
				}
			}
			n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
		})
	}
}
