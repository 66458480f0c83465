package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// A container is neither created nor started over a folder from which others unmounted its volume, or that they removed.
func TestStart_UnmountedVolume(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for name, c := range map[string]struct {
		mounts bool // the volume was mounted once
		is     bool // it is now
		path   string
		starts bool
	}{
		"mounted":             {mounts: true, is: true, path: "volumes/kubernetes.io~csi/pv/mount", starts: true},
		"unmounted":           {mounts: true, path: "volumes/kubernetes.io~csi/pv/mount"},
		"plain folder":        {path: "volumes/kubernetes.io~empty-dir/v", starts: true},
		"removed folder":      {path: "volumes/kubernetes.io~empty-dir/gone"},
		"folder of the host":  {mounts: true, path: "/", starts: true},
		"created before that": {mounts: true, path: "volumes/kubernetes.io~csi/pv/mount"},
	} {
		t.Run(name, func(t *testing.T) {
			h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
			pod := podOf(v1.Container{Name: "c", Image: "image", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "made"}}})
			w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)}
			at := c.path
			if !filepath.IsAbs(at) {
				at = filepath.Join(h.PodDir("u1"), at)
				must(t, os.MkdirAll(at, 0o750))
			} else {
				pod.Spec.Containers[0].VolumeMounts[0].SubPath = ""
			}
			if w.Volumes = map[string]string{"v": at}; c.mounts {
				w.Mounts = map[string]bool{"v": true}
			}
			t.Cleanup(func() { _ = unix.Unmount(filepath.Join(h.PodDir("u1"), "volume-subpaths/v/c/0"), unix.MNT_DETACH) })
			t.Cleanup(func() { _ = unix.Unmount(filepath.Join(h.PodDir("u1"), "volume-subpaths/pv/c/0"), unix.MNT_DETACH) })
			if c.is {
				must(t, unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"))
				t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
			}
			created := 0
			if name == "created before that" {
				c := w
				c.Container = c.Container.DeepCopy()
				c.Container.VolumeMounts[0].SubPath = ""
				config, s, err := configs(t.Context(), h, c)
				must(t, err)
				id, err := h.CRI.CreateContainer(t.Context(), w.Sandbox.ID, config, s)
				must(t, err)
				w.Adopt, created = &messages.ContainerFact{ID: id, State: messages.ContainerCreated}, 1
			} else if name == "removed folder" {
				must(t, os.Remove(at))
			}
			done := start(t.Context(), h, w)
			if c.starts {
				if done.reason != nil || done.fact == nil || done.fact.State != messages.ContainerRunning {
					t.Errorf("got %+v, want a running container", done)
				}
				return
			}
			if done.reason == nil || done.reason.Cause.Code != messages.CauseUnmounted || done.reason.Cause.Name != "v" ||
				done.reason.Cause.Detail != at || done.started {
				t.Errorf("got %+v, want that volume v is unmounted", done)
			}
			if n := len(runtime.Calls("CreateContainer")); n != created {
				t.Errorf("got %d calls of CreateContainer, want %d", n, created)
			}
			if entries, err := os.ReadDir(at); created == 0 && len(entries) > 0 || err != nil && !strings.Contains(err.Error(), "no such") {
				t.Errorf("the folder has %v (%v), want no subPath in it", entries, err)
			}
		})
	}
}
