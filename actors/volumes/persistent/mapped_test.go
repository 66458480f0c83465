package persistent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/messages"
)

// mapped requests the volumes of pod a with a block device. It returns the Events, and for each failure whether it is a device's.
func (n *node) mapped(claim string) (events []string, failures []bool) {
	n.Send(messages.PodAddress("a"), messages.MountVolumes{UID: "a", Pod: podWithDevice("a", claim)})
	n.Settle(false)
	for _, sent := range n.Take() {
		switch m := sent.Msg.(type) {
		case messages.RecordEvent:
			events = append(events, m.Type+" "+m.Reason+" "+m.Message)
		case messages.VolumesFailed:
			failures = append(failures, m.Device)
		}
	}
	return events, failures
}

// observed returns the observations of operations on volumes since before, sorted.
func observed(t *testing.T, before map[string]uint64) (out []string) {
	t.Helper()
	for key, count := range counts(t) {
		if name, rest, _ := strings.Cut(key, " "); strings.HasPrefix(name, "storage_op") || strings.HasPrefix(name, "volume_op") {
			if count > before[key] {
				out = append(out, fmt.Sprintf("%s %d", strings.TrimPrefix(rest, "false "), count-before[key]))
			}
		}
	}
	slices.Sort(out)
	return out
}

// The Events and metrics of a block volume of a CSI driver are the kubelet's.
func TestDevice_EventsAndMetrics(t *testing.T) {
	n := newBlockNode(t, csi.Stages)
	before := counts(t)
	n.driver.Fail = func(call string) error {
		if call == "Publish" {
			return errors.New("no device")
		}
		return nil
	}
	if events, failures := n.mapped("c"); len(events) > 0 || !slices.Equal(failures, []bool{true}) {
		t.Errorf("a failure: got the Events %q and failures %v", events, failures)
	}
	n.driver.Fail = nil
	n.newProcess(t)
	want := []string{
		fmt.Sprintf(`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-c" globalMapPath %q`, n.path("pv-c/dev")),
		fmt.Sprintf(`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-c" volumeMapPath %q`,
			n.Pod("a/volumeDevices/kubernetes.io~csi")),
	}
	if events, failures := n.mapped("c"); !slices.Equal(events, want) || len(failures) > 0 {
		t.Errorf("got the Events %q and failures %v, want %q", events, failures, want)
	}
	if events, _ := n.mapped("c"); len(events) > 0 {
		t.Errorf("a repeated request: got the Events %q", events)
	}
	n.Unmounted("a")
	n.wantNothing(t)
	const plugin = "kubernetes.io/csi:" + testDriver
	got, ops := observed(t, before), []string{"map_volume fail-unknown " + plugin + " 1", "map_volume success " + plugin + " 1",
		"unmap_device success " + plugin + " 1", "unmap_volume success " + plugin + " 1"}
	if !slices.Equal(got, ops) {
		t.Errorf("got the operations %q, want %q", got, ops)
	}
}

// The same of a local device, which has no map for all pods.
func TestLocalDevice_EventsAndMetrics(t *testing.T) {
	n := storageNode(t, boundDevice("disk", makeDevice(t))...)
	before := counts(t)
	want := []string{fmt.Sprintf(`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-disk" volumeMapPath %q`,
		n.Pod("a/volumeDevices/kubernetes.io~local-volume"))}
	if events, failures := n.mapped("disk"); !slices.Equal(events, want) || len(failures) > 0 {
		t.Errorf("got the Events %q and failures %v, want %q", events, failures, want)
	}
	n.restart(t)
	if events, _ := n.mapped("disk"); len(events) > 0 {
		t.Errorf("a restarted actor: got the Events %q", events)
	}
	n.Unmounted("a")
	const plugin = "kubernetes.io/local-volume"
	got, ops := observed(t, before), []string{"map_volume success " + plugin + " 2", "unmap_volume success " + plugin + " 1"}
	if !slices.Equal(got, ops) {
		t.Errorf("got the operations %q, want %q", got, ops)
	}
}
