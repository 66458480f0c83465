package persistent_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/playlet-dev/playlet/actors/internal/pluginwatch"
	"github.com/playlet-dev/playlet/actors/volumes"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func write(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, nil, 0o644))
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func writeData(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must(t, os.WriteFile(path, []byte("data"), 0o600))
}

const testDriver = "disk.example.org"

// node is the volumes actor with its own disk and with persistent volumes.
type node struct {
	volumestest.Pods
	ops     *cri.Operations
	facts   kinds.Facts
	storage *persistent.Storage
	actor   supervisors.Actor
}

// storageNode returns a node with an API server that has these objects.
func storageNode(t *testing.T, objects ...runtime.Object) *node {
	volumestest.NeedMounts(t)
	n := &node{ops: cri.NewOperations(), facts: kinds.Facts{Log: slog.New(slog.DiscardHandler), NFS: &nfs.Mounter{}}}
	n.RootDir = t.TempDir()
	t.Cleanup(func() { volumestest.UnmountBelow(t, n.RootDir) })
	n.storage = persistent.New(persistent.Options{
		Client: fake.NewClientset(objects...), NodeName: "n", RootDir: n.RootDir, Operations: n.ops, Log: n.facts.Log,
	})
	t.Cleanup(n.storage.Close)
	w := pluginwatch.Watcher{Dir: filepath.Join(n.RootDir, "plugins_registry"), Log: n.facts.Log, Retry: kinds.RetryPlugin,
		Handlers: map[string]pluginwatch.Handler{registration.CSIPlugin: n.storage.Drivers}}
	t.Cleanup(w.Start())
	n.restart(t)
	return n
}

// restart replaces the actor. The disk and the operations stay.
func (n *node) restart(t testing.TB) {
	n.actor = volumes.New(volumes.Options{RootDir: n.RootDir, Operations: n.ops, Node: n.facts, Storage: n.storage})("volumes")
	n.Kit = supervisortest.New(t, messages.Volumes, n.actor)
}

// endUnreported removes a pod's volumes. The actor does not receive the result.
func (n *node) endUnreported(uid string) {
	n.TB.Helper()
	n.Send(messages.PodAddress(uid), messages.UnmountVolumes{UID: uid, Remove: true})
	i := slices.IndexFunc(n.Work, func(w supervisors.Work) bool { return strings.HasPrefix(w.Name, "remove volumes") })
	if i < 0 {
		n.TB.Fatalf("the removal of pod %s has not begun", uid)
	}
	w := n.Work[i]
	n.Work = slices.Delete(n.Work, i, i+1)
	w.Run(n.TB.Context())
}

// startDriver starts a driver and waits until it is registered.
func startDriver(t *testing.T, n *node, d *csitest.Driver) *csitest.Driver {
	t.Helper()
	d.Name, d.Data = testDriver, t.TempDir()
	must(t, d.Start(n.RootDir))
	t.Cleanup(d.Stop)
	eventually(t, func() bool { _, err := n.storage.Drivers.Get(testDriver); return err == nil })
	return d
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come true")
		}
	}
}

func attachRequired(b bool) *storagev1.CSIDriver {
	info := true
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: testDriver}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: &b, PodInfoOnMount: &info, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{"Persistent", "Ephemeral"},
	}}
}

// bound returns a claim and the volume that is bound to it.
func bound(name string, source v1.PersistentVolumeSource) []runtime.Object {
	return []runtime.Object{
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}},
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: source, ClaimRef: &v1.ObjectReference{UID: types.UID(name)},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		}},
	}
}

func csiSource(handle string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: testDriver, VolumeHandle: handle,
		VolumeAttributes: map[string]string{"pool": "fast"}}}
}

func claimVolume(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}
