package container

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Recursive read-only mounts are requested only from runtimes that support them. Others would silently ignore the request.
func TestRecursiveReadOnly(t *testing.T) {
	for _, c := range []struct {
		mode                  v1.RecursiveReadOnlyMode
		able, asked, mistaken bool
	}{
		{"", true, false, false},
		{v1.RecursiveReadOnlyDisabled, true, false, false},
		{v1.RecursiveReadOnlyIfPossible, true, true, false},
		{v1.RecursiveReadOnlyIfPossible, false, false, false},
		{v1.RecursiveReadOnlyEnabled, true, true, false},
		{v1.RecursiveReadOnlyEnabled, false, false, true},
	} {
		mount := v1.VolumeMount{MountPath: "/v", ReadOnly: true}
		if c.mode != "" {
			mount.RecursiveReadOnly = &c.mode
		}
		asked, err := recursiveReadOnly(&mount, c.able)
		if asked != c.asked || (err != nil) != c.mistaken {
			t.Errorf("%q, able %v: asked %v, %v", c.mode, c.able, asked, err)
		}
	}
}

// The abilities of the sandbox's runtime handler decide.
func TestRecursiveReadOnlyIsTheHandlers(t *testing.T) {
	possible := v1.RecursiveReadOnlyIfPossible
	h := &host.Host{Abilities: func() host.Abilities {
		return host.Abilities{RecursiveReadOnlyMounts: map[string]bool{"": false, "able": true}}
	}}
	for handler, want := range map[string]bool{"able": true, "": false, "unknown": false} {
		w := messages.RunContainer{Pod: &v1.Pod{}, Volumes: map[string]string{"v": "/v"},
			Sandbox: messages.Sandbox{Handler: handler}}
		m, err := volumeMount(h, w, &v1.VolumeMount{Name: "v", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: &possible})
		if err != nil || m.RecursiveReadOnly != want {
			t.Errorf("%q: %v, %v", handler, m, err)
		}
	}
}

// A claim that is bound to a folder of the host keeps its SELinux label. Other volumes get the container's label.
func TestAFolderOfTheHostIsNotRelabelled(t *testing.T) {
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	h := &host.Host{RootDir: "/root", Abilities: func() host.Abilities { return host.Abilities{} }}
	for path, want := range map[string]bool{"/srv": false, h.PodDir("u") + "/volumes/kubernetes.io~csi/pv/mount": true} {
		w := messages.RunContainer{Pod: &v1.Pod{}, Volumes: map[string]string{"v": path}}
		w.Pod.UID, w.Pod.Spec.Volumes = "u", []v1.Volume{{Name: "v", VolumeSource: claim}}
		if m, err := volumeMount(h, w, &v1.VolumeMount{Name: "v", MountPath: "/m"}); err != nil || m.SelinuxRelabel != want {
			t.Errorf("%s: %v, %v", path, m, err)
		}
	}
}

// Every user of a container can read /etc/hosts, whatever the agent's umask, and whether the file is new or existed before.
func TestEveryUserReadsTheHostsFile(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	h := &host.Host{RootDir: t.TempDir()}
	w := messages.RunContainer{Pod: &v1.Pod{}, Sandbox: messages.Sandbox{IPs: []string{"192.0.2.1"}}}
	w.Pod.UID = "u1"
	for _, earlier := range []fs.FileMode{0, 0o600} {
		path, err := writeHosts(h, w)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("with one of mode %v there: %v, %v", earlier, info.Mode(), err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A container may write any amount of data to its /etc/hosts.
func TestHostsFileIsNotReadWhole(t *testing.T) {
	h := &host.Host{RootDir: t.TempDir()}
	w := messages.RunContainer{Pod: &v1.Pod{}, Sandbox: messages.Sandbox{IPs: []string{"192.0.2.1"}}}
	w.Pod.UID = "u1"
	path, err := writeHosts(h, w)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"a terabyte":       func() error { return os.Truncate(path, 1<<40) },
		"a byte more":      func() error { return os.Truncate(path, int64(len(want))+1) },
		"nothing":          func() error { return os.Truncate(path, 0) },
		"another text":     func() error { return os.WriteFile(path, bytes.ToUpper(want), 0o644) },
		"what there was":   func() error { return nil },
		"it has been lost": func() error { return os.Remove(path) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := writeHosts(h, w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != int64(len(want)) {
			t.Fatalf("%s: the file has %d bytes, %v", name, info.Size(), err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: it says %q, %v", name, got, err)
		}
	}
}

// The runtime mounts an image volume read-only, as a whole or the requested part of it. The part cannot lie outside the image.
func TestMountsOfImages(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r:1"}}}}}}
	w := messages.RunContainer{Pod: pod, ImageVolumes: map[string]string{"v": "sha256:1"}, Container: &v1.Container{}}
	h := &host.Host{RootDir: t.TempDir(), Abilities: func() host.Abilities { return host.Abilities{} }}
	env := []translate.EnvVar{{Name: "PART", Value: "a/b"}, {Name: "OUT", Value: "../b"}, {Name: "ROOT", Value: "/etc"}}
	for _, c := range []struct {
		mount v1.VolumeMount
		part  string
		fails bool
	}{
		{mount: v1.VolumeMount{}},
		{mount: v1.VolumeMount{SubPath: "a"}, part: "a"},
		{mount: v1.VolumeMount{SubPathExpr: "x/$(PART)"}, part: "x/a/b"},
		{mount: v1.VolumeMount{SubPathExpr: "$(OUT)"}, fails: true},
		{mount: v1.VolumeMount{SubPathExpr: "$(ROOT)"}, fails: true},
		{mount: v1.VolumeMount{SubPathExpr: "$(NONE)"}, fails: true},
	} {
		c.mount.Name, c.mount.MountPath = "v", "/m"
		w.Container.VolumeMounts = []v1.VolumeMount{c.mount}
		got, err := mounts(t.Context(), h, w, env)
		if c.fails {
			if err == nil {
				t.Errorf("%+v: %v", c.mount, got)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].GetImage().GetImage() != "sha256:1" || got[0].SelinuxRelabel ||
			got[0].GetImage().GetUserSpecifiedImage() != "r:1" || got[0].HostPath != "" || !got[0].Readonly ||
			got[0].ImageSubPath != c.part || got[0].ContainerPath != "/m" {
			t.Errorf("%+v: %v, %v", c.mount, got, err)
		}
	}
}

// The hosts file of a node with block lists has megabytes.
func TestHostsFileOfANodeWithBlockLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, bytes.Repeat([]byte("0.0.0.0 a.example\n"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readAtMost(path, maxHosts); err != nil || len(text) != 18<<20 {
		t.Errorf("read %d bytes (%v), want all", len(text), err)
	}
}

// A container that is restarted for ever leaves no more than its latest termination logs.
func TestTerminationLogs_AreBounded(t *testing.T) {
	h := &host.Host{RootDir: t.TempDir()}
	w := messages.RunContainer{Pod: &v1.Pod{}, Container: &v1.Container{Name: "c"}}
	w.Pod.UID = "u1"
	for w.Attempt = range uint32(2 * keptTerminationLogs) {
		for range 2 {
			if path, err := terminationLog(h, w); err != nil {
				t.Fatal(err)
			} else if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left, err := os.ReadDir(h.ContainerDir("u1", "c")); err != nil || len(left) != keptTerminationLogs {
		t.Errorf("got %d logs (%v), want %d", len(left), err, keptTerminationLogs)
	}
}
