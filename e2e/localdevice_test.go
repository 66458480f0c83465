//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
)

// A local volume that is an empty block device is formatted. A pod's data is there for the next pod, also if the agent is
// killed in between, and the device is free when the last pod is gone.
func TestLocalDevice_FileSystem(t *testing.T) {
	device, _ := loopDevice(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	boundClaim(t, c, ns, "disk", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}}, nil)
	pod := func(args string) string {
		return strings.Replace(`
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [ARGS, --, sleep], volumeMounts: [{name: disk, mountPath: /disk}]}
volumes:
- {name: disk, persistentVolumeClaim: {claimName: disk}}`, "ARGS", args, 1)
	}
	create(t, c, ns, n.Name, manifest(s, "first", pod("write, /disk/file, kept")))
	awaitAPIPod(t, c, ns, "first", ready)
	must(t, a.Kill9())
	must(t, a.Start())
	remove(t, c, ns, "first")
	awaitNoAPIPod(t, c, ns, "first")
	next := create(t, c, ns, n.Name, manifest(s, "next", pod("cat, /disk/file")))
	awaitAPIPod(t, c, ns, "next", ready)
	text, err := os.ReadFile(volumeOf(a, string(next.UID), "local-volume", ns+"-disk", "file"))
	if err != nil || !strings.HasPrefix(string(text), "kept") {
		t.Errorf("the next pod reads %q: %v", text, err)
	}
	must(t, a.Kill9())
	must(t, a.Start())
	remove(t, c, ns, "next")
	awaitNoAPIPod(t, c, ns, "next")
	await(t, func() error {
		mounts, err := os.ReadFile("/proc/mounts")
		if err == nil && strings.Contains(string(mounts), device+" ") {
			err = fmt.Errorf("the device is mounted:\n%s", mounts)
		}
		if left, _ := filepath.Glob(filepath.Join(a.RootDir, "plugins/kubernetes.io/local-volume/mounts/*")); err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	})
}
