package persistent_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// blockNode is a node with an attached block volume pv-c of a CSI driver.
type blockNode struct {
	*node
	driver *csitest.Driver
	device string
}

func newBlockNode(t *testing.T, can ...api.NodeServiceCapability_RPC_Type) blockNode {
	return blockNodeOf(t, blockObjects(), can...)
}

// blockObjects returns the claim c, its block volume, the driver and the attachment.
func blockObjects() []runtime.Object {
	objects := bound("c", csiSource("h"))
	mode := v1.PersistentVolumeBlock
	objects[1].(*v1.PersistentVolume).Spec.VolumeMode = &mode
	return append(objects, attachRequired(true), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: persistent.AttachmentName("h", testDriver, "n")},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true}})
}

func blockNodeOf(t *testing.T, objects []runtime.Object, can ...api.NodeServiceCapability_RPC_Type) blockNode {
	t.Helper()
	device, _ := volumestest.LoopDevice(t)
	n := blockNode{storageNode(t, objects...), nil, device}
	t.Cleanup(func() { // before the unmounts, which make loop devices over maps unknown
		for _, path := range n.glob(t, "*/dev/*") {
			for _, loop := range volumestest.LoopsOver(t, path) {
				_, _ = volumestest.Losetup("-d", loop)
			}
		}
	})
	n.driver = startDriver(t, n.node, &csitest.Driver{Can: can, Devices: map[string]string{"h": device}})
	n.attach()
	return n
}

func (n blockNode) attach() {
	n.storage.Observe(&v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{attachedName},
		VolumesAttached: []v1.AttachedVolume{{Name: attachedName}}}})
}

func (n blockNode) path(elements ...string) string {
	return filepath.Join(append([]string{n.storage.CSIFolder(), "volumeDevices"}, elements...)...)
}

func (n blockNode) glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(n.path(pattern))
	must(t, err)
	return found
}

func (n blockNode) link(uid string) string { return n.Pod(uid, "volumeDevices/kubernetes.io~csi/pv-c") }

// mount requests the volumes of a pod with the device, and returns the answers.
func (n blockNode) mount(uid string) []any {
	return n.Tell(uid, messages.MountVolumes{UID: uid, Pod: podWithDevice(uid, "c")})
}

// wantMounted checks that the pod has the device, in the layout of a kubelet.
func (n blockNode) wantMounted(t *testing.T, uid string, got []any) {
	t.Helper()
	m, ok := messages.VolumesMounted{}, false
	if len(got) > 0 {
		m, ok = got[len(got)-1].(messages.VolumesMounted)
	}
	if !ok || m.Paths["v"] != n.link(uid) || m.Mounts["v"] {
		t.Fatalf("got %+v, want the link %s", got, n.link(uid))
	}
	want, err := blockmap.At(n.device)
	must(t, err)
	target, mapped := n.path("publish/pv-c", uid), n.path("pv-c/dev", uid)
	for _, path := range []string{n.link(uid), target, mapped} {
		if is, err := blockmap.At(path); err != nil || is != want {
			t.Errorf("%s is %v (%v), want %v", path, is, err, want)
		}
	}
	if to, err := os.Readlink(n.link(uid)); err != nil || to != target {
		t.Errorf("the link leads to %s (%v), want %s", to, err, target)
	}
	if loops := volumestest.LoopsOver(t, mapped); len(loops) != 1 {
		t.Errorf("the device is held by %v, want one loop device", loops)
	}
}

// wantNothing checks that nothing of the volume and its pods is left.
func (n blockNode) wantNothing(t *testing.T) {
	t.Helper()
	n.Answers("")
	if left := slices.Concat(n.glob(t, "*/*"), n.glob(t, "pv-*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if pods, err := filepath.Glob(n.Pod("*")); err != nil || len(pods) > 0 {
		t.Errorf("pods are left: %v, %v", pods, err)
	}
	if loops := append(volumestest.LoopsOver(t, n.path("pv-c/dev/a")), volumestest.LoopsOver(t, n.device)...); len(loops) > 0 {
		t.Errorf("loop devices are left: %v", loops)
	}
	wantInUse(t, n.node)
}

// newProcess replaces the process of the agent.
func (n blockNode) newProcess(t *testing.T) {
	n.storage.ForgetAll()
	n.restart(t)
}

// sweep looks for volumes that no pod has.
func (n blockNode) sweep(uids ...string) {
	desired := map[string]bool{}
	for _, uid := range uids {
		desired[uid] = true
	}
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: desired})
	n.Answers("")
}

// A block volume is staged once and published for each of its pods, also by the next agent, and undone with the last pod.
func TestDevice_Life(t *testing.T) {
	for name, c := range map[string]struct {
		can             []api.NodeServiceCapability_RPC_Type
		first, next, by []string
	}{
		"staging": {[]api.NodeServiceCapability_RPC_Type{csi.Stages}, []string{"Stage h", "Publish h"}, []string{"Publish h"},
			[]string{"Unpublish h", "Unpublish h", "Unstage h"}},
		"plain": {nil, []string{"Publish h"}, []string{"Publish h"}, []string{"Unpublish h", "Unpublish h"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newBlockNode(t, c.can...)
			n.wantMounted(t, "a", n.mount("a"))
			var record map[string]string // as a kubelet reads it
			must(t, json.Unmarshal([]byte(read(t, n.path("pv-c/data", csi.RecordFile))), &record))
			for key, want := range map[string]string{"specVolID": "pv-c", "volumeHandle": "h", "driverName": testDriver, "nodeName": "n",
				"attachmentID": persistent.AttachmentName("h", testDriver, "n")} {
				if record[key] != want {
					t.Errorf("the record has %s %q, want %q", key, record[key], want)
				}
			}
			if exists(t, n.path("staging/pv-c")) != (name == "staging") {
				t.Error("the staging folder is wrong")
			}
			n.wantMounted(t, "a", n.mount("a"))
			want := c.first
			if got := n.driver.Calls(); !slices.Equal(got, want) {
				t.Errorf("calls %v, want %v", got, want)
			}
			n.newProcess(t)
			n.wantMounted(t, "a", n.mount("a"))
			n.wantMounted(t, "b", n.mount("b"))
			want = slices.Concat(want, c.first, c.next)
			if got := n.driver.Calls(); !slices.Equal(got, want) {
				t.Errorf("calls %v, want %v", got, want)
			}
			if held, err := leftover.Find(n.RootDir, false); err != nil || len(held) > 0 {
				t.Errorf("held: %v, %v", held, err)
			}
			wantInUse(t, n.node, attachedName)
			must(t, persistent.StagedDriver{Storage: n.storage}.Remove(t.Context(), "volumeDevices/pv-c")) // it has pods
			n.driver.Fail = func(call string) error {
				if call == "Unpublish" { // some drivers leave the file
					write(t, n.path("publish/pv-c/a"))
				}
				return nil
			}
			n.Unmounted("a")
			if n.driver.Fail = nil; exists(t, n.path("publish/pv-c/a")) {
				t.Error("the driver's file is left")
			}
			n.wantMounted(t, "b", n.mount("b"))
			n.Unmounted("b")
			n.wantNothing(t)
			if got := n.driver.Calls(); !slices.Equal(got, append(want, c.by...)) {
				t.Errorf("calls %v, want %v", got, append(want, c.by...))
			}
		})
	}
}

// A call of the driver fails after its work, and the agent is replaced. Both the pod's start and its end go on from there.
func TestDevice_EachCallFailsOnce(t *testing.T) {
	for _, call := range []string{"Stage", "Publish", "Unpublish", "Unstage"} {
		for _, over := range []bool{false, true} { // whether the pod ends meanwhile
			t.Run(call, func(t *testing.T) {
				n := newBlockNode(t, csi.Stages)
				failed := false
				n.driver.Fail = func(c string) error {
					if c != call || failed {
						return nil
					}
					failed = true
					return errors.New("killed")
				}
				got := n.mount("a")
				if strings.HasPrefix(call, "Un") {
					n.wantMounted(t, "a", got)
					n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
				}
				if !failed {
					t.Fatal("the call was not made")
				}
				wantInUse(t, n.node, attachedName)
				n.newProcess(t)
				n.attach()
				if !over {
					n.wantMounted(t, "a", n.mount("a"))
				}
				n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
				n.sweep()
				n.wantNothing(t)
			})
		}
	}
}

// The states on the disk in which an agent or a kubelet may be killed. Each is undone with the pod, or by a sweep if the pod has
// no folder, and each lets the pod start.
func TestDevice_States(t *testing.T) {
	type node = blockNode
	record := func(t *testing.T, n node) {
		writeRecord(t, n.path("pv-c/data", csi.RecordFile), "h")
		must(t, os.WriteFile(n.path("pv-c/data", csi.RecordFile), // without the fields of this agent
			[]byte(`{"attachmentID":"x","driverName":"`+testDriver+`","nodeName":"n","specVolID":"pv-c","volumeHandle":"h"}`), 0o600))
	}
	link := func(t *testing.T, n node) {
		must(t, os.MkdirAll(filepath.Dir(n.link("a")), 0o750))
		must(t, os.Symlink(n.path("publish/pv-c/a"), n.link("a")))
	}
	bind := func(t *testing.T, n node, path string) {
		write(t, n.path(path))
		must(t, unix.Mount(n.device, n.path(path), "", unix.MS_BIND, ""))
	}
	staged := func(t *testing.T, n node) { bind(t, n, "staging/pv-c/device") }
	published := func(t *testing.T, n node) { bind(t, n, "publish/pv-c/a") }
	mapped := func(t *testing.T, n node) { bind(t, n, "pv-c/dev/a") }
	loop := func(t *testing.T, n node) {
		_, err := volumestest.Losetup("-f", n.path("pv-c/dev/a"))
		must(t, err)
	}
	for name, steps := range map[string][]func(*testing.T, node){
		"record":             {record},
		"half a record":      {func(t *testing.T, n node) { write(t, n.path("pv-c/data", csi.NewRecordFile)) }},
		"folder for staging": {record, link, func(t *testing.T, n node) { must(t, os.MkdirAll(n.path("staging/pv-c"), 0o750)) }},
		"link":               {record, link},
		"staged":             {record, link, staged},
		"published":          {record, link, staged, published},
		"file for the map":   {record, link, staged, published, func(t *testing.T, n node) { write(t, n.path("pv-c/dev/a")) }},
		"mapped":             {record, link, staged, published, mapped},
		"complete":           {record, link, staged, published, mapped, loop},
		"lost link":          {record, staged, published, mapped},
		"link only lost":     {record, staged, published, mapped, func(t *testing.T, n node) { must(t, os.MkdirAll(n.Pod("a"), 0o750)) }},
		"unmapped":           {record, staged, published},
		"unpublished":        {record, link, staged, func(t *testing.T, n node) { must(t, os.MkdirAll(n.path("publish/pv-c"), 0o750)) }},
		"link to the device": {record, staged, published, mapped, loop, func(t *testing.T, n node) {
			must(t, os.MkdirAll(filepath.Dir(n.link("a")), 0o750))
			must(t, os.Symlink(n.device, n.link("a")))
		}},
		"stale link": {record, staged, func(t *testing.T, n node) {
			must(t, os.MkdirAll(filepath.Dir(n.link("a")), 0o750))
			must(t, os.Symlink("/dev/null", n.link("a")))
		}},
		"after a reboot": {record, link, func(t *testing.T, n node) {
			for _, file := range []string{"staging/pv-c/device", "publish/pv-c/a", "pv-c/dev/a"} {
				write(t, n.path(file))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, start := range []bool{false, true} {
				n := newBlockNode(t, csi.Stages)
				for _, step := range steps {
					step(t, n)
				}
				made := exists(t, n.path("publish/pv-c/a"))
				if start {
					got := n.mount("a")
					if to, err := os.Readlink(n.link("a")); err == nil && to == n.device { // it stays: it leads to the device
						must(t, os.Remove(n.link("a")))
						must(t, os.Symlink(n.path("publish/pv-c/a"), n.link("a")))
					}
					n.wantMounted(t, "a", got)
				}
				if exists(t, n.Pod("a")) {
					n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
				}
				n.sweep()
				n.wantNothing(t)
				if made && !slices.Contains(n.driver.Calls(), "Unpublish h") {
					t.Errorf("calls %v, want Unpublish", n.driver.Calls())
				}
			}
		})
	}
}

// A device whose record is lost is undone with the record that its PersistentVolume gives. Without both, all stays, is
// reported, and no volume is detached.
func TestDevice_LostRecord(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"lost": os.Remove, "unreadable": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newBlockNode(t, csi.Stages)
			n.wantMounted(t, "a", n.mount("a"))
			record := n.path("pv-c/data", csi.RecordFile)
			must(t, lose(record))
			volumes := n.storage.Client.CoreV1().PersistentVolumes()
			pv, err := volumes.Get(t.Context(), "pv-c", metav1.GetOptions{})
			must(t, err)
			must(t, volumes.Delete(t.Context(), "pv-c", metav1.DeleteOptions{}))
			left := n.Unmounted("a")
			if !left.Published || !strings.Contains(left.Left, "the record of block device pv-c is lost") || slices.Contains(n.driver.Calls(), "Unpublish h") {
				t.Errorf("got %+v after %v, want that the record is lost", left, n.driver.Calls())
			}
			if use, err := n.storage.InUse(t.Context()); err == nil || !slices.Equal(use, []v1.UniqueVolumeName{attachedName}) {
				t.Errorf("in use: %v, %v, want an error and the Node's volume", use, err)
			}
			held, err := leftover.Find(n.RootDir, false)
			if err != nil || len(held) != 2 || held[0].Code != messages.HeldDevice || held[1].Path != n.link("a") || held[0].Path != n.path("pv-c") {
				t.Errorf("held: %+v, %v", held, err)
			}
			other := pv.DeepCopy()
			other.Spec.CSI.VolumeHandle = "other"
			_, err = volumes.Create(t.Context(), other, metav1.CreateOptions{})
			must(t, err)
			if left := n.Unmounted("a"); !strings.Contains(left.Left, "is another volume by now") || slices.Contains(n.driver.Calls(), "Unpublish other") {
				t.Errorf("got %+v after %v, want that the PersistentVolume is another", left, n.driver.Calls())
			}
			must(t, volumes.Delete(t.Context(), "pv-c", metav1.DeleteOptions{}))
			_, err = volumes.Create(t.Context(), pv, metav1.CreateOptions{})
			must(t, err)
			n.Unmounted("a")
			n.sweep()
			n.wantNothing(t)
		})
	}
	t.Run("start", func(t *testing.T) {
		n := newBlockNode(t)
		n.wantMounted(t, "a", n.mount("a"))
		must(t, os.Remove(n.path("pv-c/data", csi.RecordFile)))
		n.newProcess(t)
		n.attach()
		n.wantMounted(t, "a", n.mount("a"))
		n.Unmounted("a")
		n.wantNothing(t)
	})
}

// A device that is open elsewhere is neither unstaged nor, by a driver that does not stage, taken away. It stays in use, also for
// the next agent.
func TestDevice_OpenElsewhere(t *testing.T) {
	for name, can := range map[string][]api.NodeServiceCapability_RPC_Type{"staging": {csi.Stages}, "plain": nil} {
		t.Run(name, func(t *testing.T) {
			n := newBlockNode(t, can...)
			n.wantMounted(t, "a", n.mount("a"))
			f, err := os.Open(n.device)
			must(t, err)
			user := exec.Command("sleep", "1000")
			user.Stdin = f
			must(t, errors.Join(user.Start(), f.Close()))
			end := func() { _ = user.Process.Kill(); _ = user.Wait() }
			defer end()
			last := "Unpublish h"
			if can != nil {
				last = "Unstage h"
			}
			for range 2 {
				left, err := n.Unmounted("a"), error(nil)
				if can != nil {
					err = persistent.StagedDriver{Storage: n.storage}.Remove(t.Context(), "volumeDevices/pv-c")
				} else {
					err = errors.New(left.Left)
				}
				if !strings.Contains(err.Error(), "is still in use, so it stays: by process ") || slices.Contains(n.driver.Calls(), last) {
					t.Fatalf("got %v after %v, want that a process has the device", err, n.driver.Calls())
				}
				wantInUse(t, n.node, attachedName)
				n.newProcess(t)
				n.attach()
			}
			end()
			n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
			n.sweep()
			n.wantNothing(t)
			if calls := n.driver.Calls(); calls[len(calls)-1] != last {
				t.Errorf("calls %v, want %s last", calls, last)
			}
		})
	}
}

// A ReadWriteOncePod block volume is published for one pod at a time.
func TestDevice_ReadWriteOncePod(t *testing.T) {
	objects := blockObjects()
	objects[1].(*v1.PersistentVolume).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	n := blockNodeOf(t, objects)
	n.wantMounted(t, "a", n.mount("a"))
	got := n.mount("b")
	if m, ok := got[0].(messages.VolumesFailed); !ok || m.Reason.Cause.Code != messages.CauseVolumeInUse || m.Device || exists(t, n.link("b")) {
		t.Errorf("got %+v, want that the volume is in use", got)
	}
	n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
	n.wantMounted(t, "b", n.mount("b"))
	n.Unmounted("b")
	n.wantNothing(t)
}

// A block device grows in use. The driver gets the path of the device and the capability.
func TestDevice_Grows(t *testing.T) {
	objects := blockObjects()
	objects[0].(*v1.PersistentVolumeClaim).Status.Capacity = sized("1Gi")
	objects[1].(*v1.PersistentVolume).Spec.Capacity = sized("1Gi")
	n := blockNodeOf(t, objects, csi.Stages, csi.Grows)
	n.wantMounted(t, "a", n.mount("a"))
	n.enlarge(t)
	n.later()
	if grown := n.driver.Grown(); len(grown) != 1 || grown[0].GetVolumePath() != n.path("publish/pv-c/a") || grown[0].GetVolumeCapability().GetBlock() == nil ||
		grown[0].GetStagingTargetPath() != n.path("staging/pv-c") || n.claim(t).Status.Capacity.Storage().String() != "2Gi" {
		t.Errorf("grown: %v", grown)
	}
	n.Unmounted("a")
	n.wantNothing(t)
}

// The figures of a block volume are asked for by the kubelet's path.
func TestDevice_Usage(t *testing.T) {
	n := newBlockNode(t, csi.HasStats)
	n.wantMounted(t, "a", n.mount("a"))
	if got, err := n.storage.Usage(t.Context(), n.RootDir, podWithDevice("a", "c")); err != nil || got["v"].Bytes.Total != 100 {
		t.Errorf("the usage is %+v, %v", got, err)
	}
	n.Unmounted("a")
}

func TestDevice_Refusals(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(t *testing.T, n blockNode, objects []runtime.Object)
		want      string
		permanent bool
	}{
		"reserved name": {func(_ *testing.T, _ blockNode, objects []runtime.Object) {
			objects[0].(*v1.PersistentVolumeClaim).Spec.VolumeName = "staging"
			objects[1].(*v1.PersistentVolume).Name = "staging"
		}, "the name is one of the kubelet's folders", true},
		"other volume": {func(t *testing.T, n blockNode, _ []runtime.Object) {
			writeRecord(t, n.path("pv-c/data", csi.RecordFile), "of before")
		}, "another PersistentVolume of the name pv-c is still on this node: volume of before", false},
		"no device": {func(_ *testing.T, n blockNode, _ []runtime.Object) { n.driver.Devices["h"] = "/dev/null" }, "published no block device", false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := blockObjects()
			if name == "reserved name" {
				c.change(t, blockNode{}, objects)
			}
			n := blockNodeOf(t, objects)
			if name != "reserved name" {
				c.change(t, n, objects)
			}
			got := n.mount("a")
			m, ok := got[0].(messages.VolumesFailed)
			if !ok || !strings.Contains(m.Reason.Message, c.want) || m.Reason.Permanent != c.permanent {
				t.Errorf("got %+v, want %q", got, c.want)
			}
			n.Tell("a", messages.UnmountVolumes{UID: "a", Remove: true})
		})
	}
}

// Without an API server there are no drivers: the device stays and is reported.
func TestDevice_Standalone(t *testing.T) {
	n := newBlockNode(t)
	n.wantMounted(t, "a", n.mount("a"))
	pods, err := kinds.OpenPods(n.RootDir)
	must(t, err)
	folder, err := kinds.OpenPod(pods, "a", nil)
	must(t, errors.Join(err, pods.Close()))
	if err := (*persistent.Storage)(nil).UnmapDevices(t.Context(), folder); err == nil ||
		!strings.Contains(err.Error(), "there are none without an API server") || !exists(t, n.link("a")) {
		t.Errorf("got %v, want that there are no drivers", err)
	}
	must(t, folder.Close())
	held, err := leftover.Find(n.RootDir, true)
	if err != nil || len(held) != 2 || held[0].Code != messages.HeldDriver || held[1].Code != messages.HeldDriver {
		t.Errorf("held: %+v, %v", held, err)
	}
	n.Unmounted("a")
}

// The process of a driver is known by its socket, also of one that does not answer. It counts as no user of a device.
func TestDevice_ProcessOfTheDriver(t *testing.T) {
	n := newBlockNode(t, csi.Stages)
	driver, err := n.storage.Drivers.Get(testDriver)
	must(t, err)
	if got := driver.Process(t.Context()); got != os.Getpid() {
		t.Errorf("the driver is process %d, want this one, %d", got, os.Getpid())
	}
	if got := (&csi.Driver{Endpoint: filepath.Join(t.TempDir(), "absent")}).Process(t.Context()); got != 0 {
		t.Errorf("an absent driver is process %d, want 0", got)
	}
}
