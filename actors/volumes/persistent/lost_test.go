package persistent_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// lostNode has two attached volumes that are staged, each a file system of its own. Pod a has one of them without a readable
// record. Another volume of the Node is on no disk.
func lostNode(t *testing.T) (s *persistent.Storage, key [2]string, record string) {
	t.Helper()
	n := storageNode(t, attachRequired(true))
	s = n.storage
	s.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"of the Node"}}})
	for i, handle := range []string{"h0", "h1"} {
		key[i] = persistent.StagedKey(csi.Record{Driver: testDriver, Handle: handle})
		writeRecord(t, filepath.Join(s.CSIFolder(), key[i], csi.RecordFile), handle)
		at := filepath.Join(s.CSIFolder(), key[i], csi.GlobalMount)
		must(t, os.Mkdir(at, 0o750))
		volumestest.MountTmpfs(t, at)
	}
	record = n.Pod("a/volumes/kubernetes.io~csi/pv", csi.RecordFile)
	bindAt(t, filepath.Join(s.CSIFolder(), key[0], csi.GlobalMount), filepath.Join(filepath.Dir(record), csi.MountFolder))
	must(t, os.WriteFile(record, []byte("{"), 0o600))
	return s, key, record
}

func writeRecord(t *testing.T, path, handle string) {
	t.Helper()
	write(t, path)
	must(t, os.WriteFile(path, []byte(`{"driverName":"`+testDriver+`","volumeHandle":"`+handle+`"}`), 0o600))
}

func unique(handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(persistent.UniqueName(csi.Record{Driver: testDriver, Handle: handle}))
}

// A record of a pod that is lost or cannot be read holds the volume with the device of its mount, and no other.
func TestLostRecord_HoldsItsVolume(t *testing.T) {
	for name, lose := range map[string]func(path string) error{"lost": os.Remove, "unreadable": func(string) error { return nil }} {
		t.Run(name, func(t *testing.T) {
			s, key, record := lostNode(t)
			must(t, lose(record))
			_, records, err := s.Published()
			must(t, errors.Join(err, s.MayHave(records, persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "not staged"}))))
			d := persistent.StagedDriver{Storage: s}
			if got, err := d.Inventory(t.Context()); err != nil || !slices.Equal(got, []string{key[1]}) {
				t.Errorf("to unstage: %v, %v, want %s", got, err, key[1])
			}
			if err := d.Remove(t.Context(), key[0]); err == nil || !strings.Contains(err.Error(), csi.RecordFile) {
				t.Errorf("unstaging the volume returned %v, want an error about the record", err)
			}
			var gone csi.NotRegisteredError
			if err := d.Remove(t.Context(), key[1]); !errors.As(err, &gone) {
				t.Errorf("unstaging the other volume returned %v, want that the driver is asked", err)
			}
			if got, err := s.InUse(t.Context()); err != nil || !slices.Equal(got, []v1.UniqueVolumeName{unique("h0"), unique("h1")}) {
				t.Errorf("in use: %v, %v, want the two volumes alone", got, err)
			}
		})
	}
}

// If devices do not show the volume of a mount, all volumes are held.
func TestLostRecord_OfAnUnknownVolume(t *testing.T) {
	for name, unmounted := range map[string]int{"of no staged volume": 0, "staged without a mount": 1} {
		t.Run(name, func(t *testing.T) {
			s, key, record := lostNode(t)
			mount := filepath.Join(filepath.Dir(record), csi.MountFolder)
			must(t, volumestest.UnmountNow(mount))
			volumestest.MountTmpfs(t, mount)
			if unmounted == 1 { // the driver staged the volume without a mount
				must(t, volumestest.UnmountNow(filepath.Join(s.CSIFolder(), key[0], csi.GlobalMount)))
			}
			want := key[unmounted:]
			if unmounted == 0 {
				want = key[:]
			}
			got, err := persistent.StagedDriver{Storage: s}.Inventory(t.Context())
			slices.Sort(got)
			slices.Sort(want)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("to unstage: %v, %v, want %v", got, err, want)
			}
			names := []v1.UniqueVolumeName{unique("h0"), unique("h1"), "of the Node"}
			if got, err := s.InUse(t.Context()); err == nil || !slices.Equal(got, names) {
				t.Errorf("in use: %v, %v, want all and an error", got, err)
			}
		})
	}
}

// A staging folder without a readable record holds the volume on the Node that has this folder's name.
func TestLostRecord_OfAStagedVolume(t *testing.T) {
	s, key, record := lostNode(t)
	writeRecord(t, record, "h0")
	must(t, os.Remove(filepath.Join(s.CSIFolder(), key[1], csi.RecordFile)))
	s.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{unique("h1"), "of the Node"}}})
	if got, err := s.InUse(t.Context()); err != nil || !slices.Equal(got, []v1.UniqueVolumeName{unique("h0"), unique("h1")}) {
		t.Errorf("in use: %v, %v, want the two volumes alone", got, err)
	}
	s.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"of the Node"}}})
	if got, err := s.InUse(t.Context()); err == nil || !slices.Equal(got, []v1.UniqueVolumeName{unique("h0"), "of the Node"}) {
		t.Errorf("in use: %v, %v, want all and an error", got, err)
	}
}

// A mount whose record a power cut has damaged is undone by its driver if the PersistentVolume of its name is surely the same
// volume: by the staged file system, or by the Node's list. Otherwise it stays.
func TestLostRecord_Again(t *testing.T) {
	for name, c := range map[string]struct {
		can    []api.NodeServiceCapability_RPC_Type
		attach bool
		handle string // of the PersistentVolume by then
		undone bool
	}{
		"staged":          {[]api.NodeServiceCapability_RPC_Type{csi.Stages}, false, "h", true},
		"staged, other":   {[]api.NodeServiceCapability_RPC_Type{csi.Stages}, false, "other", false},
		"attached":        {nil, true, "h", true},
		"attached, other": {nil, true, "other", false},
		"neither":         {nil, false, "h", false},
		// another pod of the node has that volume
		"of another": {nil, true, "other", false},
	} {
		for damage, lose := range map[string]func(path string) error{
			"lost": os.Remove, "empty": func(path string) error { return os.Truncate(path, 0) },
		} {
			t.Run(name+", "+damage, func(t *testing.T) {
				objects := append(bound("c", csiSource("h")), attachRequired(c.attach), &storagev1.VolumeAttachment{
					ObjectMeta: metav1.ObjectMeta{Name: persistent.AttachmentName("h", testDriver, "n")},
					Status:     storagev1.VolumeAttachmentStatus{Attached: true}})
				n := storageNode(t, objects...)
				d := startDriver(t, n, &csitest.Driver{Can: c.can})
				n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{attachedName},
					VolumesAttached: []v1.AttachedVolume{{Name: attachedName}}}})
				n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
				folder := n.Pod("a", "volumes/kubernetes.io~csi/pv-c")
				if !slices.Contains(d.Calls(), "Publish h") {
					t.Fatalf("calls %v, want a mount", d.Calls())
				}
				if name == "of another" {
					record, err := os.ReadFile(filepath.Join(folder, csi.RecordFile))
					must(t, err)
					otherName := v1.UniqueVolumeName(strings.TrimSuffix(string(attachedName), "h") + "other")
					its := n.Pod("b", "volumes/kubernetes.io~csi/pv-c")
					must(t, os.MkdirAll(its, 0o750))
					must(t, os.WriteFile(filepath.Join(its, csi.RecordFile), bytes.ReplaceAll(record, []byte(`"h"`), []byte(`"other"`)), 0o600))
					n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{attachedName, otherName},
						VolumesAttached: []v1.AttachedVolume{{Name: attachedName}, {Name: otherName}}}})
				}
				must(t, lose(filepath.Join(folder, csi.RecordFile)))
				volumes := n.storage.Client.CoreV1().PersistentVolumes()
				pv, err := volumes.Get(t.Context(), "pv-c", metav1.GetOptions{})
				must(t, err)
				pv = pv.DeepCopy()
				pv.Spec.CSI.VolumeHandle = c.handle
				_, err = volumes.Update(t.Context(), pv, metav1.UpdateOptions{})
				must(t, err)
				left := n.Unmounted("a")
				if undone := left.Left == "" && !exists(t, folder); undone != c.undone {
					t.Errorf("undone: %v, want %v: %+v after %v", undone, c.undone, left, d.Calls())
				}
				if got := strings.Contains(strings.Join(d.Calls(), " "), "Unpublish"); got != c.undone {
					t.Errorf("calls %v, want Unpublish: %v", d.Calls(), c.undone)
				}
			})
		}
	}
}
