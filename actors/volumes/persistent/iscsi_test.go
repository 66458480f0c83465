package persistent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

const (
	testTarget = "iqn.2001-04.com.example:disk"
	unitName   = v1.UniqueVolumeName("kubernetes.io/iscsi/10.0.0.1:" + testTarget + ":1")
)

// unitNode is a node that attaches by itself, with a logical unit.
type unitNode struct {
	*node
	volumestest.FakeISCSI
	place, device string
}

func newUnitNode(t *testing.T, objects ...runtime.Object) unitNode {
	device, _ := volumestest.LoopDevice(t)
	fake := volumestest.NewFakeISCSI(t)
	fake.AddUnit(t, "1", device)
	n := unitNode{node: storageNode(t, objects...), FakeISCSI: fake, device: device}
	n.storage.ISCSI = iscsi.Initiator{Root: fake.Root}
	n.place = filepath.Join(iscsi.Top(n.RootDir), "iface-default/10.0.0.1:3260-"+testTarget+"-lun-1")
	n.observe("", v1.NodeStatus{})
	return n
}

// newProcess replaces the actor and the storage.
func (n unitNode) newProcess(t *testing.T) {
	n.storage.Close()
	n.storage = persistent.New(n.storage.Options)
	t.Cleanup(n.storage.Close)
	n.restart(t)
	n.observe("", v1.NodeStatus{})
}

func unitPod(uid string) *v1.Pod {
	return volumestest.APIPodWith(uid, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: testTarget, Lun: 1}}})
}

// mount mounts the volume of a pod, and returns the path of a file in it.
func (n unitNode) mount(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	got := n.Tell(string(pod.UID), messages.MountVolumes{UID: string(pod.UID), Pod: pod})
	m, is := got[len(got)-1].(messages.VolumesMounted)
	if !is || !m.Mounts["data"] {
		t.Fatalf("pod %s: got %+v", pod.UID, got)
	}
	return filepath.Join(m.Paths["data"], "file")
}

func (n unitNode) end(t *testing.T, uid string) {
	t.Helper()
	n.Tell(uid, messages.UnmountVolumes{UID: uid, Remove: true})
	if exists(t, n.Pod(uid)) {
		t.Fatalf("the folder of pod %s is left", uid)
	}
}

func (n unitNode) sweep(uids ...string) {
	wanted := map[string]bool{}
	for _, uid := range uids {
		wanted[uid] = true
	}
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: wanted})
	n.Answers("")
}

func (n unitNode) wantGone(t *testing.T, logouts int) {
	t.Helper()
	names, err := os.ReadDir(iscsi.Top(n.RootDir))
	must(t, err)
	if len(names) > 0 || n.Sessions(t) > 0 || n.Count(t, "-u") != logouts {
		t.Errorf("left are %v and %d sessions, after the calls %q, want %d logouts", names, n.Sessions(t), n.Calls(t), logouts)
	}
}

// An empty unit is formatted and mounted for all its pods, also by a new process. Its session ends once, after the last pod.
// Later pods have its data.
func TestISCSI_Lifetime(t *testing.T) {
	n := newUnitNode(t)
	writeData(t, n.mount(t, unitPod("a")))
	if got := read(t, n.mount(t, unitPod("b"))); got != "data" {
		t.Errorf("another pod reads %q", got)
	}
	wantInUse(t, n.node, unitName)
	n.end(t, "a")
	n.newProcess(t)
	n.sweep("b")
	if got := read(t, n.mount(t, unitPod("b"))); got != "data" || !exists(t, filepath.Join(n.place, "file")) {
		t.Errorf("after a restart, a pod reads %q", got)
	}
	if n.Count(t, "--login") != 1 || n.Count(t, "-u") != 0 {
		t.Errorf("got the calls %q, want one login", n.Calls(t))
	}
	n.end(t, "b")
	n.sweep()
	n.sweep()
	n.wantGone(t, 1)
	wantInUse(t, n.node)
	if got := read(t, n.mount(t, unitPod("c"))); got != "data" {
		t.Errorf("a later pod reads %q", got)
	}
	n.end(t, "c")
	n.wantGone(t, 2)
}

// A process that is killed between two steps leaves one of these states. The next one goes on, or undoes them without a pod.
func TestISCSI_KilledAtEachStep(t *testing.T) {
	for left, name := range []string{"a folder", "a record", "a session", "a mount"} {
		for _, wanted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, wanted %v", name, wanted), func(t *testing.T) {
				n := newUnitNode(t)
				file := n.mount(t, unitPod("a"))
				writeData(t, file)
				must(t, unix.Unmount(filepath.Dir(file), 0))
				must(t, os.RemoveAll(n.Pod("a"))) //nolint:forbidigo // nothing is mounted in it
				if left < 3 {
					must(t, unix.Unmount(n.place, 0))
				}
				if left < 2 {
					must(t, exec.CommandContext(t.Context(), "iscsiadm", "-m", "session", "-r", "1", "-u").Run())
				}
				if left < 1 {
					must(t, os.Remove(filepath.Join(n.place, "iscsi.json")))
				}
				n.newProcess(t)
				if wanted {
					if got := read(t, n.mount(t, unitPod("a"))); got != "data" {
						t.Errorf("got %q, want the data", got)
					}
					n.sweep("a")
					if !exists(t, filepath.Join(n.place, "file")) {
						t.Error("the volume of a pod was unmounted")
					}
					n.end(t, "a")
				}
				n.sweep()
				logouts := 1
				if wanted && left < 2 {
					logouts = 2
				}
				n.wantGone(t, logouts)
			})
		}
	}
}

// As with a controller that attaches, the Node lists the volume as in use first, and as attached later.
func TestISCSI_WaitsForTheNode(t *testing.T) {
	n := newUnitNode(t)
	managed := func(status v1.NodeStatus) []any {
		node := &v1.Node{Status: status}
		node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		n.Send(messages.Registration, messages.NodeObserved{Node: node})
		return n.Answers("a")
	}
	managed(v1.NodeStatus{})
	n.Tell("a", messages.MountVolumes{UID: "a", Pod: unitPod("a")})
	wantInUse(t, n.node, unitName)
	managed(v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{unitName}})
	if calls := n.Calls(t); len(calls) > 0 {
		t.Fatalf("got the calls %q before the volume is attached", calls)
	}
	got := managed(v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{unitName},
		VolumesAttached: []v1.AttachedVolume{{Name: unitName}}})
	if len(got) == 0 || n.Sessions(t) != 1 {
		t.Errorf("got %+v and %d sessions", got, n.Sessions(t))
	}
	n.newProcess(t)
	managed(v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{unitName}})
	wantInUse(t, n.node, unitName) // by the record
	n.end(t, "a")
}

// A claim has its password from a Secret of the namespace that the PersistentVolume names.
func TestISCSI_ClaimWithPassword(t *testing.T) {
	source := &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: testTarget, Lun: 1, SessionCHAPAuth: true,
		SecretRef: &v1.SecretReference{Name: "chap", Namespace: "storage"}}
	secret := &v1.Secret{Data: map[string][]byte{"node.session.auth.username": []byte("me"), "node.session.auth.password": []byte("word")}}
	secret.Name, secret.Namespace = "chap", "storage"
	n := newUnitNode(t, append(bound("disk", v1.PersistentVolumeSource{ISCSI: source}), secret)...)
	n.mount(t, diskPod("a"))
	if !exists(t, n.Pod("a", "volumes/kubernetes.io~iscsi/pv-disk")) {
		t.Error("the volume is not at the kubelet's place")
	}
	text := read(t, filepath.Join(n.FakeISCSI.Root, "etc/iscsi/nodes", testTarget, "10.0.0.1,3260"))
	if !strings.Contains(text, "node.session.auth.password = word\n") || slices.ContainsFunc(n.Calls(t), func(call string) bool {
		return strings.Contains(call, "word")
	}) {
		t.Errorf("got %q and the calls %q", text, n.Calls(t))
	}
	n.end(t, "a")
	n.wantGone(t, 1)
}

// A unit without a file system is not formatted for a pod that reads. With one, the pod's mount is read-only, also where the
// volume is mounted with write access for another pod.
func TestISCSI_ReadOnly(t *testing.T) {
	n := newUnitNode(t)
	reader := unitPod("r")
	reader.Spec.Volumes[0].ISCSI.ReadOnly = true
	if got := fmt.Sprintf("%+v", n.Tell("r", messages.MountVolumes{UID: "r", Pod: reader})); !strings.Contains(got, "is not formatted") {
		t.Errorf("got %s", got)
	}
	writeData(t, n.mount(t, unitPod("a")))
	n.Tell("r", messages.UnmountVolumes{UID: "r", Remove: true})
	file := n.mount(t, reader)
	if err := os.WriteFile(file, nil, 0o600); err == nil || read(t, file) != "data" {
		t.Errorf("a pod that reads writes: %v", err)
	}
	writeData(t, n.mount(t, unitPod("a")))
	n.end(t, "r")
	n.end(t, "a")
	n.wantGone(t, 1)
}
