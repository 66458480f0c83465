package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/cri/sim"
)

// A volume that others unmount while its pod runs is mounted again before a container of the pod is restarted.
func TestRestartOverAnUnmountedVolume(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	r := newRig(t, sim.Options{})
	t.Cleanup(func() { volumestest.UnmountBelow(t, filepath.Join(r.dir, "root")) })
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever\n    volumeMounts: [{name: memory, mountPath: /m}]"})+
		"  volumes: [{name: memory, emptyDir: {medium: Memory, sizeLimit: 64Ki}}]\n")
	r.start(nil)
	runs := func(attempt uint32) func(sim.Snapshot) bool {
		return func(s sim.Snapshot) bool {
			c := s.Container("web-node", "main")
			return c != nil && c.Attempt == attempt && c.Running()
		}
	}
	r.await("the container", runs(0))
	uid := r.runtime.Snapshot().Sandbox("web-node").UID
	at := filepath.Join(r.dir, "root/pods", uid, "volumes/kubernetes.io~empty-dir/memory")
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.runtime.Exit(uid, "main", 1, "Error"); err != nil {
		t.Fatal(err)
	}
	r.await("the container again", runs(1))
	is, err := mountinfo.Mounted(at)
	if err != nil || !is {
		t.Errorf("the container was restarted over the plain folder %s (%v)", at, err)
	}
	if log := r.log.String(); !strings.Contains(log, "memory") {
		t.Error("the log does not name the volume")
	}
}
