//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An agent is killed in each call of a driver, while an administrator binds a folder into a volume and unmounts another. No file
// outside the pod is lost, the bound folder keeps the pod's folder, and nothing is left once it is unmounted.
func TestKilledInCallsOfADriver(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	d := &csitest.Driver{Name: ns + ".example.org", Data: t.TempDir(), Hang: make(chan struct{}),
		Can: []api.NodeServiceCapability_RPC_Type{api.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}
	var next atomic.Pointer[string] // the call that hangs, once
	next.Store(new(""))
	d.Hangs = func(call string) bool { p := next.Load(); return *p == call && next.CompareAndSwap(p, new("")) }
	hang := func(call string) { next.Store(new(call)) }
	// killedIn kills the agent in a call that hangs. The next one will hang in another call.
	killedIn := func(call, then string) {
		t.Helper()
		await(t, func() error {
			if calls := d.Calls(); *next.Load() != "" || !slices.Contains(calls, call) {
				return fmt.Errorf("the driver was asked for %v, want %s", calls, call)
			}
			return nil
		})
		must(t, a.Kill9())
		hang(then)
		must(t, a.Start())
	}
	_, err := c.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}}, metav1.CreateOptions{})
	must(t, err)
	must(t, d.Start(a.RootDir))
	defer d.Stop()
	local, host, bound := t.TempDir(), t.TempDir(), t.TempDir()
	var files []string
	for _, dir := range []string{local, host, bound, filepath.Join(d.Data, "h"), filepath.Join(d.Data, "h", "in")} {
		must(t, os.MkdirAll(dir, 0o777))
		files = append(files, filepath.Join(dir, "precious"))
		touch(t, files[len(files)-1])
	}
	boundClaim(t, c, ns, "claim", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: d.Name, VolumeHandle: "h"}}, nil)
	boundClaim(t, c, ns, "local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: local}}, nil)
	hang("Stage h")
	pod := create(t, c, ns, n.Name, manifest(s, "p", strings.ReplaceAll(`
terminationGracePeriodSeconds: 1
containers:
- name: c
  image: HELLO
  args: [write, /claim/x, one, --, write, /part/x, two, --, write, /local/x, three, --, write, /scratch/x, four, --, sleep]
  volumeMounts:
  - {name: claim, mountPath: /claim}
  - {name: claim, mountPath: /part, subPath: in}
  - {name: local, mountPath: /local}
  - {name: host, mountPath: /host}
  - {name: scratch, mountPath: /scratch}
volumes:
- {name: claim, persistentVolumeClaim: {claimName: claim}}
- {name: local, persistentVolumeClaim: {claimName: local}}
- {name: host, hostPath: {path: HOSTS}}
- {name: scratch, emptyDir: {}}`, "HOSTS", host)))
	killedIn("Stage h", "Publish h")
	killedIn("Publish h", "")
	running := awaitAPIPod(t, c, ns, "p", ready)
	awaitFile(t, filepath.Join(local, "x"), "three\n")
	at := volumeOf(a, string(pod.UID), "empty-dir", "scratch", "by-hand")
	must(t, os.Mkdir(at, 0o755))
	must(t, unix.Mount(bound, at, "", unix.MS_BIND, ""))
	must(t, unix.Unmount(volumeOf(a, string(pod.UID), "local-volume", ns+"-local"), unix.MNT_DETACH))
	must(t, a.Kill9())
	must(t, a.Start())
	settled(t, a)
	if now := awaitAPIPod(t, c, ns, "p", ready); statusOf(now, "c").ContainerID != statusOf(running, "c").ContainerID {
		t.Errorf("got another container: %+v", now.Status)
	}
	hang("Unpublish h")
	remove(t, c, ns, "p")
	killedIn("Unpublish h", "Unstage h")
	killedIn("Unstage h", "")
	folder := filepath.Join(a.RootDir, "pods", string(pod.UID))
	await(t, func() error {
		if got := podMounts(t, a); !slices.Equal(got, []string{at}) {
			return fmt.Errorf("%v is mounted, want %s", got, at)
		}
		return nil
	})
	for _, file := range append(files, filepath.Join(at, "precious"), filepath.Join(local, "x"), filepath.Join(d.Data, "h", "x"),
		filepath.Join(d.Data, "h", "in", "x")) {
		if _, err := os.Lstat(file); err != nil {
			t.Errorf("the file is lost: %v", err)
		}
	}
	must(t, unix.Unmount(at, 0))
	await(t, func() error {
		staged, err := filepath.Glob(filepath.Join(a.RootDir, "plugins/kubernetes.io/csi", d.Name, "*"))
		if _, statErr := os.Lstat(folder); err == nil && (!os.IsNotExist(statErr) || len(staged) > 0) {
			err = fmt.Errorf("left are %s (%v), %v", folder, statErr, staged)
		}
		return err
	})
	if _, err := os.Lstat(filepath.Join(bound, "precious")); err != nil {
		t.Error(err)
	}
}
