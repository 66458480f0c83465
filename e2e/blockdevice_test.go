//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// A container writes to a local block device (a loop device). The agent is killed meanwhile, and the next one ends the pod: the
// data is on the device, and nothing of the pod is left.
func TestLocalBlockDevice(t *testing.T) {
	device, _ := loopDevice(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	boundClaim(t, c, ns, "disk", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}}, nil, asBlock)
	pod := create(t, c, ns, n.Name, manifest(s, "p", writesToDisk))
	folder := filepath.Join(a.RootDir, "pods", string(pod.UID))
	written := func() error { return writtenTo(device) }
	await(t, written)
	must(t, a.Kill9())
	must(t, a.Start())
	must(t, c.Admin.CoreV1().Pods(ns).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	await(t, func() error {
		if _, err := os.Lstat(folder); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the pod's folder is left: %v", err)
		}
		return nil
	})
	must(t, written())
}

const writesToDisk = `
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [write, /dev/xvda, sentinel, --, sleep], volumeDevices: [{name: disk, devicePath: /dev/xvda}]}
volumes:
- {name: disk, persistentVolumeClaim: {claimName: disk}}`

func asBlock(claim *corev1.PersistentVolumeClaimSpec, pv *corev1.PersistentVolumeSpec) {
	mode := corev1.PersistentVolumeBlock
	claim.VolumeMode, pv.VolumeMode = &mode, &mode
}

// writtenTo returns an error unless a device or its file begins as the pod of writesToDisk writes it.
func writtenTo(path string) error {
	data, err := os.ReadFile(path)
	if err == nil && !bytes.HasPrefix(data, []byte("sentinel")) {
		err = fmt.Errorf("%s begins with %q", path, data[:16])
	}
	return err
}

// loopDevice returns a loop device over a new file, and the file. At the end of the test the device has to be free.
func loopDevice(t *testing.T) (device, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := exec.Command("losetup", "--associated", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("the device is still open: %v: %s", err, out)
		}
	})
	return device, file
}

// blockDriver starts a CSI driver with a device as its volume h, and binds the claim disk to the volume.
func blockDriver(t *testing.T, c *cluster.Cluster, a *stack.Agent, ns, device string) *csitest.Driver {
	t.Helper()
	d := &csitest.Driver{Name: ns + ".example.org", Data: t.TempDir(), Devices: map[string]string{"h": device},
		Can: []api.NodeServiceCapability_RPC_Type{api.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}
	_, err := c.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}}, metav1.CreateOptions{})
	must(t, err)
	must(t, d.Start(a.RootDir))
	t.Cleanup(d.Stop)
	boundClaim(t, c, ns, "disk", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: d.Name, VolumeHandle: "h"}}, nil, asBlock)
	return d
}

// noBlockDevice returns an error if anything of a block volume or of its pod is left.
func noBlockDevice(a *stack.Agent, pod *corev1.Pod) error {
	left, err := filepath.Glob(filepath.Join(a.RootDir, "plugins/kubernetes.io/csi/volumeDevices/*/*"))
	if _, statErr := os.Lstat(filepath.Join(a.RootDir, "pods", string(pod.UID))); !errors.Is(statErr, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("the pod's folder is left: %v", statErr))
	}
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left are %v", left))
	}
	mounts, readErr := os.ReadFile("/proc/self/mountinfo")
	loops, listErr := exec.Command("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").CombinedOutput()
	for line := range strings.Lines(string(mounts) + string(loops)) {
		if strings.Contains(line, a.RootDir+"/plugins/kubernetes.io/csi/volumeDevices") {
			err = errors.Join(err, errors.New("still mapped: "+line))
		}
	}
	return errors.Join(err, readErr, listErr)
}

// A container writes to the block device of a CSI driver. The agent is killed, and the next one ends the pod: the data is in the
// device's file, and nothing of the volume is left.
func TestCSIBlockDevice(t *testing.T) {
	device, file := loopDevice(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	d := blockDriver(t, c, a, ns, device)
	pod := create(t, c, ns, n.Name, manifest(s, "p", writesToDisk))
	await(t, func() error { return writtenTo(device) })
	must(t, a.Kill9())
	must(t, a.Start())
	awaitAPIPod(t, c, ns, "p", ready)
	must(t, a.Kill9())
	remove(t, c, ns, "p")
	must(t, a.Start())
	awaitNoAPIPod(t, c, ns, "p")
	await(t, func() error { return noBlockDevice(a, pod) })
	must(t, writtenTo(file))
	if calls := d.Calls(); !slices.Equal(calls[len(calls)-2:], []string{"Unpublish h", "Unstage h"}) {
		t.Errorf("the driver was asked for %v", calls)
	}
}

// The block device of a CSI driver that a kubelet mapped is used and undone by Playlet, and the reverse.
func TestBlockDeviceTakenOverAndGivenBack(t *testing.T) {
	device, file := loopDevice(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { asKubelet(t, a) })
	blockDriver(t, c, a, ns, device)
	kubelet := a.Binary
	for _, name := range []string{"kubelets", "ours"} {
		pod := create(t, c, ns, n.Name, manifest(s, name, writesToDisk))
		before := awaitAPIPod(t, c, ns, name, ready)
		_, err := a.Term()
		must(t, err)
		if a.Binary = kubelet; name == "kubelets" {
			a.Binary = "" // ours, which then makes the second pod
		}
		must(t, a.Start())
		settled(t, a)
		if now := awaitAPIPod(t, c, ns, name, ready); statusOf(now, "c").ContainerID != statusOf(before, "c").ContainerID {
			t.Errorf("pod %s got another container: %+v", name, now.Status)
		}
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
		await(t, func() error { return noBlockDevice(a, pod) })
		must(t, writtenTo(file))
	}
}
