package registration

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/messages"
)

func TestTheCSINodeSaysWhichDriversThereAre(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"zone": "b"},
		Annotations: map[string]string{annotationNodeIDs: `{"gone":"x","starting":"y"}`}}}
	was := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "gone", NodeID: "x"}, {Name: "starting", NodeID: "y"}}}}
	reported := messages.CSIDriversObserved{Gone: []string{"gone"}, Drivers: []messages.CSIDriver{
		{Name: "disk", NodeID: "z", MaxVolumes: 7, Topology: map[string]string{"zone": "a", "rack": "1"}}}}
	got := csiNode(was, node, reported)
	if d := got.Spec.Drivers; len(d) != 2 || d[0].Name != "disk" || d[0].NodeID != "z" || *d[0].Allocatable.Count != 7 ||
		len(d[0].TopologyKeys) != 2 || d[0].TopologyKeys[0] != "rack" || d[1].Name != "starting" {
		t.Errorf("drivers %+v", d)
	}
	if text := got.Annotations["storage.alpha.kubernetes.io/migrated-plugins"]; strings.Count(text, ",") != 6 {
		t.Errorf("moved to CSI are %q", text)
	}
	if o := got.OwnerReferences; len(o) != 1 || o[0].UID != "u" || o[0].Kind != "Node" {
		t.Errorf("owners %+v", o)
	}
	if len(was.Spec.Drivers) != 2 || was.Spec.Drivers[0].Name != "gone" {
		t.Error("the CSINode that was read is changed")
	}
	with := withDrivers(node.DeepCopy(), reported)
	if got := with.Annotations[annotationNodeIDs]; got != `{"disk":"z","starting":"y"}` {
		t.Errorf("annotation %s", got)
	}
	if with.Labels["rack"] != "1" || with.Labels["zone"] != "b" {
		t.Errorf("labels %v", with.Labels)
	}
	none := withDrivers(node.DeepCopy(), messages.CSIDriversObserved{Gone: []string{"gone", "starting"}})
	if _, there := none.Annotations[annotationNodeIDs]; there {
		t.Error("an annotation of no driver is there")
	}
}

// Volumes in use are written at once, whatever was written just now: pods wait for that.
func TestVolumesInUseAreWrittenAtOnce(t *testing.T) {
	a, b := &v1.Node{}, &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"x"}}}
	if !conditionChanged(a, b) || !conditionChanged(b, a) || conditionChanged(b, b.DeepCopy()) {
		t.Error("volumes in use are not among what is written at once")
	}
}

// A driver whose entry changes is first taken out of the CSINode: entries are immutable. Others stay.
func TestCSINode_EntryIsRewritten(t *testing.T) {
	with := func(id string, keys ...string) *storagev1.CSINode {
		return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "disk", NodeID: id, TopologyKeys: keys}, {Name: "other", NodeID: "y"}}}}
	}
	for what, now := range map[string]*storagev1.CSINode{"the ID": with("new", "zone"), "the topology": with("x", "rack")} {
		if got := withoutChanged(with("x", "zone"), now); got == nil || len(got.Spec.Drivers) != 1 || got.Spec.Drivers[0].Name != "other" ||
			len(now.Spec.Drivers) != 2 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if got := withoutChanged(with("x", "zone"), with("x", "zone")); got != nil {
		t.Errorf("without a change: %+v", got)
	}
}

// An API server that refuses a label, e.g. one of a CSI driver, still gets the status.
func TestALabelThatIsRefusedHoldsNoStatus(t *testing.T) {
	w := newWorld(t, nil)
	w.api.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "", nil, errors.New("that label is forbidden")
	})
	w.start()
	w.sees()
	w.Send(messages.Volumes, messages.CSIDriversObserved{Drivers: []messages.CSIDriver{
		{Name: "disk", NodeID: "z", Topology: map[string]string{"zone": "a"}}}})
	w.Send(messages.Volumes, messages.VolumesInUse{Names: []v1.UniqueVolumeName{"x"}})
	w.work()
	if got := w.stored(); len(got.Status.VolumesInUse) != 1 {
		t.Errorf("in use: %v", got.Status.VolumesInUse)
	}
	if got := w.state.Load().Problems; len(got) != 1 || !strings.Contains(got[0], "that label is forbidden") {
		t.Errorf("problems %v", got)
	}
}
