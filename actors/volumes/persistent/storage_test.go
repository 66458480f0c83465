package persistent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// A volume that two pods share is staged once and unstaged after the second, even by an agent that was started meanwhile.
func TestAVolumeIsStagedForAllItsPods(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages, csi.HasStats}})
	for _, uid := range []string{"a", "b"} {
		got := n.Tell(uid, messages.MountVolumes{UID: uid, Pod: volumestest.APIPodWith(uid, claimVolume("data", "c"))})
		want := n.Pod(uid, "volumes/kubernetes.io~csi/pv-c/mount")
		if len(got) != 1 || !reflect.DeepEqual(got[0], messages.VolumesMounted{UID: uid, Paths: map[string]string{"data": want}, Mounts: map[string]bool{"data": true}}) {
			t.Fatalf("got %+v", got)
		}
		write(t, filepath.Join(want, uid))
	}
	if !exists(t, filepath.Join(d.Data, "h", "a")) || !exists(t, filepath.Join(d.Data, "h", "b")) {
		t.Error("what the pods wrote is not in the volume")
	}
	use, err := n.storage.Usage(t.Context(), n.RootDir, volumestest.APIPodWith("a", claimVolume("data", "c")))
	want := map[string]csi.Usage{"data": {Bytes: csi.Amount{Total: 100, Used: 40, Free: 60}, Inodes: csi.Amount{Total: 10, Used: 4, Free: 6}}}
	if err != nil || !reflect.DeepEqual(use, want) {
		t.Errorf("it uses %+v, %v", use, err)
	}
	if reported := d.Contexts()[0]; reported["pool"] != "fast" || reported["csi.storage.k8s.io/pod.uid"] != "a" ||
		reported["csi.storage.k8s.io/ephemeral"] != "false" {
		t.Errorf("the driver was told %v", reported)
	}
	var record map[string]string
	text, err := os.ReadFile(n.Pod("a", "volumes/kubernetes.io~csi/pv-c/vol_data.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &record))
	if record["specVolID"] != "pv-c" || record["volumeHandle"] != "h" || record["driverName"] != testDriver ||
		record["nodeName"] != "n" || record["attachmentID"] != persistent.AttachmentName("h", testDriver, "n") ||
		record["volumeLifecycleMode"] != "Persistent" {
		t.Errorf("the record is %v", record)
	}
	n.restart(t) // the new actor finds everything
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	calls := []string{"Stage h", "Publish h", "Publish h", "Unpublish h"}
	if got := d.Calls(); !slices.Equal(got, calls) {
		t.Errorf("calls %v, want %v", got, calls)
	}
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{}}) // b is gone, and no pod requests its end
	n.Answers("")
	eventually(t, func() bool { n.Answers(""); return slices.Equal(d.Calls(), append(calls, "Unpublish h", "Unstage h")) })
	if exists(t, n.Pod("b")) || exists(t, filepath.Join(n.storage.CSIFolder(), persistent.StagedKey(csi.Record{Driver: testDriver, Handle: "h"}))) {
		t.Error("something is left")
	}
}

// A driver that requests tokens receives their expiry, not the time of their renewal.
func TestADriverIsGivenTokens(t *testing.T) {
	driver, life := attachRequired(false), int64(600)
	driver.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault", ExpirationSeconds: &life}}
	n := storageNode(t, append(bound("c", csiSource("h")), driver)...)
	m := &volumestest.Mint{Now: n.Now}
	n.facts.Tokens = m
	n.restart(t)
	d := startDriver(t, n, &csitest.Driver{})
	pod := volumestest.APIPodWith("a", claimVolume("data", "c"))
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
	want, err := m.Token(t.Context(), pod, "vault", &life)
	must(t, err)
	var got map[string]authv1.TokenRequestStatus
	must(t, json.Unmarshal([]byte(d.Contexts()[0]["csi.storage.k8s.io/serviceAccount.tokens"]), &got))
	if m.Given != 2 || !got["vault"].ExpirationTimestamp.Time.Equal(want.Expires.Truncate(time.Second)) ||
		!strings.HasPrefix(got["vault"].Token, "token 1 of ") {
		t.Errorf("given %d, the driver was told %v", m.Given, got)
	}
}

// A mount is no proof of success. A failed call is repeated until it succeeds, and a new process repeats all calls once.
func TestAMountIsNoProofOfSuccess(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	failing := map[string]bool{"Stage": true, "Publish": true}
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}, Fail: func(call string) error {
		if failing[call] {
			delete(failing, call)
			return errors.New("not all is done")
		}
		return nil
	}})
	mount := messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))}
	for i := range 4 {
		got := n.Tell("a", mount)
		if _, ok := got[len(got)-1].(messages.VolumesMounted); ok != (i >= 2) {
			t.Errorf("at the %d. time: %+v", i, got)
		}
		n.Advance(time.Minute)
	}
	calls := []string{"Stage h", "Stage h", "Publish h", "Publish h"}
	if got := d.Calls(); !slices.Equal(got, calls) {
		t.Errorf("calls %v, want %v", got, calls)
	}
	n.storage.ForgetAll() // as in a new process
	n.restart(t)
	n.Tell("a", mount)
	if got := d.Calls(); !slices.Equal(got, append(calls, "Stage h", "Publish h")) {
		t.Errorf("calls %v of a new process", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// The fsGroup of a volume that an earlier process mounted is kept if its change is complete. A failed walk is repeated.
func TestVolume_OfEarlierProcessKeepsOwners(t *testing.T) {
	local := t.TempDir()
	file := filepath.Join(local, "file")
	write(t, file)
	n := storageNode(t, bound("c", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: local}})...)
	pod := volumestest.APIPodWith("a", claimVolume("data", "c"))
	group := int64(4711)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	s := n.storage
	for what, c := range map[string]struct {
		was   persistent.Progress
		walks bool
	}{"earlier": {0, false}, "begun": {persistent.Begun, true}, "done": {persistent.Done, false}} {
		n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
		must(t, os.Chown(file, 0, 0))
		s.SetProgress("a", "data", c.was)
		n.restart(t)
		n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
		info, err := os.Stat(file)
		must(t, err)
		if got := info.Sys().(*syscall.Stat_t).Gid == uint32(group); got != c.walks {
			t.Errorf("%s: given to the group: %t", what, got)
		}
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// While a driver has a pod's volume, the pod is notified of that and the driver is called, even if something is mounted in the
// volume.
func TestUnmount_ReportsAPublishedVolume(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	below := n.Pod("a/volumes/kubernetes.io~csi/pv-c/mount/below")
	must(t, os.MkdirAll(below, 0o755))
	volumestest.MountTmpfs(t, below)
	got := n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	if m, ok := got[len(got)-1].(messages.VolumesUnmounted); !ok || !m.Published || m.Left == "" {
		t.Errorf("got %+v", got)
	}
	if got := d.Calls(); !slices.Equal(got, []string{"Publish h", "Unpublish h"}) {
		t.Errorf("calls %v", got)
	}
	must(t, volumestest.UnmountNow(below))
	n.Advance(time.Minute)
	got = n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	if m, ok := got[len(got)-1].(messages.VolumesUnmounted); !ok || m.Published || m.Left != "" {
		t.Errorf("got %+v", got)
	}
}

// A volume is unstaged even if the report of another pod takes the news. A pod without a folder needs nothing after its end.
func TestNewsOfAnotherPodAreFollowed(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	n.endUnreported("a")
	n.Tell("b", messages.MountVolumes{UID: "b", Pod: volumestest.PodWith("b", volumestest.EmptyDirVolume("v"))})
	if got := d.Calls(); !slices.Equal(got, []string{"Stage h", "Publish h", "Unpublish h", "Unstage h"}) {
		t.Errorf("calls %v", got)
	}
	n.storage.Want("x", "v", "volume")
	n.endUnreported("x")
	if n.storage.Has("x") {
		t.Error("a pod without a folder has volumes after its end")
	}
}

// An unreadable record does not keep other volumes from the list of volumes in use. While something is mounted there, no volume
// is taken from the Node.
func TestOneRecordThatCannotBeRead(t *testing.T) {
	n := storageNode(t, attachRequired(true))
	s := n.storage
	record := func(path, text string) {
		write(t, path)
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	record(n.Pod("a/volumes/kubernetes.io~csi/pv/vol_data.json"), `{"driverName":"`+testDriver+`","volumeHandle":"h"}`)
	record(n.Pod("b/volumes/kubernetes.io~csi/pv/vol_data.json"), "{")
	s.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"of the Node"}}})
	h := v1.UniqueVolumeName("kubernetes.io/csi/" + testDriver + "^h")
	if got, err := s.InUse(t.Context()); err != nil || !slices.Equal(got, []v1.UniqueVolumeName{h}) {
		t.Errorf("where nothing is mounted: %v, %v", got, err)
	}
	mount := n.Pod("b/volumes/kubernetes.io~csi/pv/mount")
	must(t, os.Mkdir(mount, 0o755))
	volumestest.MountTmpfs(t, mount)
	if got, err := s.InUse(t.Context()); err == nil || !slices.Equal(got, []v1.UniqueVolumeName{h, "of the Node"}) {
		t.Errorf("where something is mounted: %v, %v", got, err)
	}
	record(filepath.Join(s.CSIFolder(), testDriver, "bad", "vol_data.json"), "{")
	record(filepath.Join(s.CSIFolder(), testDriver, "good", "vol_data.json"), `{"driverName":"`+testDriver+`","volumeHandle":"free"}`)
	must(t, volumestest.UnmountNow(mount))
	if got, err := (persistent.StagedDriver{s}).Inventory(t.Context()); err != nil || !slices.Equal(got, []string{testDriver + "/good"}) {
		t.Errorf("to be unstaged: %v, %v", got, err)
	}
}

// A name belongs to the socket that registered it. A socket with another endpoint gets the name when the first socket is gone.
// The end of a socket without the name changes nothing.
func TestDriverName_BelongsToItsSocket(t *testing.T) {
	n := storageNode(t)
	d := startDriver(t, n, &csitest.Driver{})
	drivers := n.storage.Drivers
	first, _ := drivers.Get(testDriver)
	held := filepath.Join(n.RootDir, "plugins_registry", testDriver+"-reg.sock")
	err := drivers.Register(t.Context(), "/other.sock", testDriver, "/other/csi.sock", []string{"1.0.0"})
	if err == nil || !strings.Contains(err.Error(), "is registered by "+held) {
		t.Errorf("another endpoint: %v", err)
	}
	drivers.Deregister("/other.sock", testDriver)
	if one, err := drivers.Get(testDriver); err != nil || one != first {
		t.Errorf("it went with the other's socket: %v", err)
	}
	must(t, drivers.Register(t.Context(), "/other.sock", testDriver, first.Endpoint, []string{"1.0.0"}))
	drivers.Deregister(held, testDriver)
	if _, err := drivers.Get(testDriver); err != nil {
		t.Errorf("it went with a socket that does not have it: %v", err)
	}
	d.Stop()
}

// A driver that is not registered has its pods wait, with its name. A hung driver does not delay the volumes of other pods.
func TestPodsWaitForADriver(t *testing.T) {
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(false))...)
	pod := volumestest.APIPodWith("a", claimVolume("data", "c"))
	got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
	if len(got) != 1 || !strings.Contains(fmt.Sprint(got), "CSI driver "+testDriver+" is not registered on this node") {
		t.Fatalf("got %+v", got)
	}
	startDriver(t, n, &csitest.Driver{})
	n.Settle(true)
	if got := n.Answers("a"); len(got) != 1 || reflect.TypeOf(got[0]) != reflect.TypeFor[messages.VolumesMounted]() {
		t.Errorf("got %+v", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
}

// A volume that has to be attached is first listed as in use, then attached, and only then staged.
func TestAVolumeWaitsToBeAttached(t *testing.T) {
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: persistent.AttachmentName("h", testDriver, "n")},
		Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	n := storageNode(t, append(bound("c", csiSource("h")), attachRequired(true), attachment)...)
	d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}})
	unique := v1.UniqueVolumeName("kubernetes.io/csi/" + testDriver + "^h")
	inUse := func() (last []v1.UniqueVolumeName) {
		n.Settle(false)
		for _, sent := range n.Take() {
			if m, ok := sent.Msg.(messages.VolumesInUse); ok {
				last = m.Names
			}
		}
		return last
	}
	n.Send(messages.PodAddress("a"), messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"))})
	if got := inUse(); !slices.Equal(got, []v1.UniqueVolumeName{unique}) || len(d.Calls()) != 0 {
		t.Fatalf("in use %v, calls %v", got, d.Calls())
	}
	node := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{unique}}}
	n.Send(messages.Registration, messages.NodeObserved{Node: node})
	if n.Answers("a"); len(d.Calls()) != 0 {
		t.Fatalf("before it is attached: %v", d.Calls())
	}
	node = node.DeepCopy()
	node.Status.VolumesAttached = []v1.AttachedVolume{{Name: unique}}
	n.Send(messages.Registration, messages.NodeObserved{Node: node})
	if n.Answers("a"); !slices.Equal(d.Calls(), []string{"Stage h", "Publish h"}) {
		t.Fatalf("calls %v", d.Calls())
	}
	n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a", Remove: true})
	if got := inUse(); len(got) != 0 {
		t.Errorf("in use at the end: %v", got)
	}
	if got := d.Calls(); !slices.Equal(got[2:], []string{"Unpublish h", "Unstage h"}) {
		t.Errorf("calls %v", got)
	}
}

// Claims that cannot be used are refused or awaited, each with its own reason. Other kinds are mounted as they are.
func TestClaims(t *testing.T) {
	local := t.TempDir()
	unbound := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "unbound"}}
	foreign := bound("a-scratch", csiSource("x"))
	block := bound("block", csiSource("x"))
	mode := v1.PersistentVolumeBlock
	block[1].(*v1.PersistentVolume).Spec.VolumeMode = &mode
	stolen := bound("stolen", csiSource("x"))
	stolen[1].(*v1.PersistentVolume).Spec.ClaimRef.UID = "another"
	objects := slices.Concat([]runtime.Object{unbound}, foreign, block, stolen,
		bound("local", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: local}}),
		bound("host", v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: local}}),
		bound("fc", v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{}}))
	n := storageNode(t, objects...)
	scratch := v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	for _, c := range []struct {
		volume v1.Volume
		want   string
	}{
		{claimVolume("v", "none"), "PersistentVolumeClaim ns/none does not exist"},
		{claimVolume("v", "unbound"), "PersistentVolumeClaim ns/unbound is not bound to a volume yet"},
		{claimVolume("v", "stolen"), "PersistentVolume pv-stolen is not bound to this claim"},
		{claimVolume("v", "block"), "PersistentVolume pv-block is a block device (volumeMode Block), but a container names it in volumeMounts"},
		{claimVolume("v", "fc"), "PersistentVolume pv-fc is of a kind that is not supported"},
		{scratch, "PersistentVolumeClaim ns/a-scratch was not made for this pod"},
		{claimVolume("v", "local"), n.Pod("a/volumes/kubernetes.io~local-volume/pv-local")},
		{claimVolume("v", "host"), local},
	} {
		pod := volumestest.APIPodWith("a", c.volume)
		group := int64(4711)
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
		if got := fmt.Sprintf("%+v", n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})); !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if c.volume.PersistentVolumeClaim != nil && c.volume.PersistentVolumeClaim.ClaimName == "local" {
			write(t, filepath.Join(n.Pod("a/volumes/kubernetes.io~local-volume/pv-local"), "data"))
			info, err := os.Stat(local)
			must(t, err)
			if !exists(t, filepath.Join(local, "data")) || info.Sys().(*syscall.Stat_t).Gid != uint32(group) ||
				info.Mode()&(os.ModeSetgid|0o770) != os.ModeSetgid|0o770 {
				t.Errorf("the folder is not in the pod, or not its group's: %v", info.Mode())
			}
		}
		n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
		if exists(t, n.Pod("a")) {
			t.Errorf("%s: the pod's folder is left", c.want)
		}
	}
	if !exists(t, filepath.Join(local, "data")) {
		t.Error("what is in the local volume went with the pod")
	}
}

// Former in-tree kinds are volumes of their CSI drivers: those of claims, and the pod's own.
func TestKindsThatWereMovedToCSI(t *testing.T) {
	objects := bound("c", v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}})
	names := []string{"ebs.csi.aws.com", "pxd.portworx.com"}
	for _, name := range names {
		object := attachRequired(false)
		object.Name = name
		objects = append(objects, object)
	}
	n := storageNode(t, objects...)
	drivers := map[string]*csitest.Driver{}
	for _, name := range names {
		d := &csitest.Driver{Name: name, Data: t.TempDir()}
		must(t, d.Start(n.RootDir))
		t.Cleanup(d.Stop)
		eventually(t, func() bool { _, err := n.storage.Drivers.Get(name); return err == nil })
		drivers[name] = d
	}
	own := v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "a/b"}}}
	got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: volumestest.APIPodWith("a", claimVolume("data", "c"), own)})
	want := messages.VolumesMounted{UID: "a", Paths: map[string]string{"data": n.Pod("a/volumes/kubernetes.io~csi/pv-c/mount"),
		"own": n.Pod("a/volumes/kubernetes.io~csi/pxd.portworx.com-a~b/mount")}, Mounts: map[string]bool{"data": true, "own": true}}
	if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("got %+v", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	for name, handle := range map[string]string{names[0]: "vol-1", names[1]: "a/b"} {
		if got := drivers[name].Calls(); !slices.Equal(got, []string{"Publish " + handle, "Unpublish " + handle}) {
			t.Errorf("%s was asked for %v", name, got)
		}
	}
	if exists(t, n.Pod("a")) {
		t.Error("something is left")
	}
}

// Several volumes of a pod may have the same claim (kubernetes/kubernetes#122140). They have one mount, which is made once.
func TestClaims_TwoVolumesOfOneClaim(t *testing.T) {
	source := t.TempDir()
	localSource := v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: source}}
	objects := slices.Concat([]runtime.Object{attachRequired(false)}, bound("csi", csiSource("h")), bound("local", localSource))
	n := storageNode(t, objects...)
	d := startDriver(t, n, &csitest.Driver{})
	pod := volumestest.APIPodWith("p", claimVolume("a", "csi"), claimVolume("b", "csi"), claimVolume("c", "local"), claimVolume("d", "local"))
	got := n.Tell("p", messages.MountVolumes{UID: "p", Pod: pod})
	m, ok := got[len(got)-1].(messages.VolumesMounted)
	if !ok || m.Paths["a"] == "" || m.Paths["a"] != m.Paths["b"] || m.Paths["c"] == "" || m.Paths["c"] != m.Paths["d"] {
		t.Fatalf("got %+v", got)
	}
	if calls := d.Calls(); !slices.Equal(calls, []string{"Publish h"}) {
		t.Errorf("calls %q, want one Publish", calls)
	}
	mounts := map[string]int{}
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.RootDir))
	must(t, err)
	for _, mount := range all {
		mounts[mount.Mountpoint]++
	}
	for _, volume := range []string{"a", "c"} {
		if count := mounts[m.Paths[volume]]; count != 1 {
			t.Errorf("volume %s is mounted %d times", volume, count)
		}
	}
	if m := n.Unmounted("p"); m.Left != "" {
		t.Errorf("unmount: %s", m.Left)
	}
	if calls := d.Calls(); !slices.Equal(calls, []string{"Publish h", "Unpublish h"}) {
		t.Errorf("calls %q", calls)
	}
}
