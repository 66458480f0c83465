//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
)

// A container writes to a local block device (a loop device). The agent is killed meanwhile, and the next one ends the pod: the
// data is on the device, and nothing of the pod is left.
func TestLocalBlockDevice(t *testing.T) {
	backing := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(backing, make([]byte, 1<<20), 0o600))
	out, err := exec.Command("losetup", "--find", "--show", backing).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	boundClaim(t, c, ns, "disk", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}}, nil, func(claim *corev1.PersistentVolumeClaimSpec, pv *corev1.PersistentVolumeSpec) {
		mode := corev1.PersistentVolumeBlock
		claim.VolumeMode, pv.VolumeMode = &mode, &mode
	})
	pod := create(t, c, ns, n.Name, manifest(s, "p", `
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [write, /dev/xvda, sentinel, --, sleep], volumeDevices: [{name: disk, devicePath: /dev/xvda}]}
volumes:
- {name: disk, persistentVolumeClaim: {claimName: disk}}`))
	folder := filepath.Join(a.RootDir, "pods", string(pod.UID))
	written := func() error {
		data, err := os.ReadFile(device)
		if err == nil && !bytes.HasPrefix(data, []byte("sentinel")) {
			err = fmt.Errorf("the device begins with %q", data[:16])
		}
		return err
	}
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
