package container

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// The runtime gets the bind mount in the pod's folder. An error names the variable, the key or the path.
func TestSubPaths(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	for _, c := range []struct {
		name, kind, path, expr, env, seen, why string
	}{
		{name: "whole", kind: "empty", seen: "."},
		{name: "folder", kind: "empty", path: "dir", seen: "dir"},
		{name: "file", kind: "empty", path: "dir/file", seen: "dir/file"},
		{name: "new", kind: "empty", path: "a/b", seen: "a/b"},
		{name: "expression", kind: "empty", expr: "x/$(A)/$$(A)", env: "value", seen: "x/value/$(A)"},
		{name: "unknown", kind: "empty", expr: "$(A)/$(B)/$(C)", env: "x", why: "no value for B, C"},
		{name: "no value", kind: "empty", expr: "x$(A)", env: "", why: "no value for A"},
		{name: "steps back", kind: "empty", expr: "$(A)", env: "../..", why: "plain relative path"},
		{name: "absolute", kind: "empty", expr: "$(A)", env: "/etc", why: "plain relative path"},
		{name: "leads out", kind: "empty", path: "out", why: "leads out"},
		{name: "no key", kind: "config", path: "key", seen: "key"},
		{name: "a key", kind: "config", path: "dir/file", seen: "dir/file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			place, dir, err := partBound(t, h, c.kind, v1.VolumeMount{Name: "v", MountPath: "/v", SubPath: c.path,
				SubPathExpr: c.expr}, c.env)
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), `"v"`) {
					t.Errorf("got %v, want %q", err, c.why)
				}
				return
			}
			must(t, err)
			if want := filepath.Join(h.PodDir("u1"), "volume-subpaths/v/c/0"); c.path+c.expr != "" && place != want {
				t.Errorf("the runtime is given %s, want %s", place, want)
			}
			got, err := os.Stat(place)
			must(t, err)
			want, err := os.Stat(filepath.Join(dir, c.seen))
			if err != nil || !os.SameFile(got, want) {
				t.Errorf("it is not %s: %v", c.seen, err)
			}
		})
	}
}

// partBound returns the host path that the runtime gets for a mount of a volume, and the volume's folder.
func partBound(t *testing.T, h *host.Host, kind string, mount v1.VolumeMount, env string) (place, dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "dir/file"), nil, 0o644))
	must(t, os.Symlink("/", filepath.Join(dir, "out")))
	must(t, os.MkdirAll(h.PodDir("u1"), 0o750))
	pod := podOf(v1.Container{
		Name: "c", Image: "image", Env: []v1.EnvVar{{Name: "A", Value: env}}, VolumeMounts: []v1.VolumeMount{mount},
	})
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if kind == "config" {
		pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}
	}
	config, _, err := configs(t.Context(), h, messages.RunContainer{
		Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Volumes: map[string]string{"v": dir},
	})
	if err != nil {
		return "", dir, err
	}
	place = config.Mounts[0].HostPath
	t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) }) // fails for the whole volume, which is no mount
	return place, dir, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A container waits for a hung volume no longer than the call may take.
func TestSubPath_HungServer(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	dir := t.TempDir()
	fusetest.Mount(t, dir).Hang()
	w := messages.RunContainer{Pod: &v1.Pod{}, Container: &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", SubPath: "part"}}}}
	w.Pod.UID = "u1"
	must(t, os.MkdirAll(h.PodDir("u1"), 0o750))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := partOf(ctx, h, w, 0, dir, nil); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want that the file system does not answer", err)
	}
}

func TestPlaceName(t *testing.T) {
	for volume, want := range map[string]string{
		"/root/pods/u1/volumes/kubernetes.io~csi/pv/mount":    "pv",
		"/root/pods/u1/volumes/kubernetes.io~local-volume/pv": "pv",
		"/root/pods/u1/volumes/kubernetes.io~empty-dir/data":  "data",
		"/srv/data": "name",
	} {
		if got := placeName("/root/pods/u1", volume, "name"); got != want {
			t.Errorf("%s: got %s, want %s", volume, got, want)
		}
	}
}
