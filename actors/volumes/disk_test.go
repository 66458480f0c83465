package volumes

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func TestMountLaysOutThePodsFolder(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	d := newDisk(t)
	d.rootDir = filepath.Join(d.rootDir, "not", "yet")
	pod := volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"), volumestest.HostPathVolume("host", "/dev/null", v1.HostPathCharDev))
	for range 2 { // a repeated mount changes nothing
		out := d.mountPod(t.Context(), "u1", pod)
		if len(out.failures()) > 0 {
			t.Fatal(out.failures())
		}
		data := d.pod("u1/volumes/kubernetes.io~empty-dir/data")
		if out.paths()["data"] != data || out.paths()["host"] != "/dev/null" || len(out.paths()) != 2 {
			t.Errorf("paths %v", out.paths())
		}
	}
	for path, want := range map[string]os.FileMode{
		"": 0o750, "u1": 0o750, "u1/volumes": 0o750, "u1/plugins": 0o750, "u1/containers": 0o750,
		"u1/volumes/kubernetes.io~empty-dir": 0o755, "u1/volumes/kubernetes.io~empty-dir/data": 0o777,
		"u1/plugins/kubernetes.io~empty-dir/data": 0o750,
	} {
		if got := mode(t, d.pod(path)); got != want|os.ModeDir {
			t.Errorf("%q has %v, want %v", path, got, want)
		}
	}
	if !mode(t, d.pod("u1/plugins/kubernetes.io~empty-dir/data/ready")).IsRegular() {
		t.Error("the ready file is missing")
	}
}

func TestEmptyDirKeepsWhatItsContainersDid(t *testing.T) {
	d := newDisk(t)
	pod := volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))
	path := d.mountPod(t.Context(), "u1", pod).paths()["data"]
	write(t, filepath.Join(path, "file"))
	must(t, os.Chmod(path, 0o700))
	if !d.stillMounted("u1", pod, state{}) {
		t.Error("not found again")
	}
	d.mountPod(t.Context(), "u1", pod)
	if mode(t, path).Perm() != 0o700 || !exists(t, filepath.Join(path, "file")) {
		t.Errorf("mode %v", mode(t, path))
	}
}

func TestEmptyDirAfterACrashHalfWay(t *testing.T) {
	d := newDisk(t)
	pod := volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))
	path := d.pod("u1/volumes/kubernetes.io~empty-dir/data")
	must(t, os.MkdirAll(path, 0o700)) // the folder exists, its mode and the ready file are missing
	if d.stillMounted("u1", pod, state{}) {
		t.Error("half a volume was taken for a whole one")
	}
	if out := d.mountPod(t.Context(), "u1", pod); len(out.failures()) > 0 || mode(t, path).Perm() != 0o777 {
		t.Errorf("%v, mode %v", out.failures(), mode(t, path))
	}
	must(t, os.RemoveAll(path)) // the ready file exists, the folder is missing
	if d.stillMounted("u1", pod, state{}) {
		t.Error("a volume that is gone was found")
	}
	if out := d.mountPod(t.Context(), "u1", pod); len(out.failures()) > 0 || mode(t, path).Perm() != 0o777 {
		t.Errorf("%v, mode %v", out.failures(), mode(t, path))
	}
}

// The removal of a pod's folder logs the freed bytes.
func TestTheLogSaysWhatAPodsFolderFreed(t *testing.T) {
	d := newDisk(t)
	var log bytes.Buffer
	d.node.Log = slog.New(slog.NewTextHandler(&log, nil))
	path := d.mountPod(t.Context(), "u1", volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))).paths()["data"]
	must(t, os.WriteFile(filepath.Join(path, "much"), make([]byte, 1<<20), 0o600))
	must(t, d.unmountPod(t.Context(), "u1", true))
	_, text, _ := strings.Cut(log.String(), "pod=u1 freedBytes=")
	freed := 0
	if _, err := fmt.Sscan(text, &freed); err != nil || freed < 1<<20 {
		t.Errorf("logged is %s: %v", log.String(), err)
	}
}

// A link in place of the volume's folder is neither accepted nor followed.
func TestEmptyDirIsNoLink(t *testing.T) {
	d := newDisk(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "keep"))
	must(t, os.Chmod(outside, 0o700))
	pod := volumestest.PodWith("u1", volumestest.EmptyDirVolume("data"))
	path := d.mountPod(t.Context(), "u1", pod).paths()["data"]
	must(t, os.Remove(path))
	must(t, os.Symlink(outside, path))
	if d.stillMounted("u1", pod, state{}) {
		t.Error("a link was taken for the volume")
	}
	if out := d.mountPod(t.Context(), "u1", pod); len(out.failures()) != 1 || out.failures()[0].volume != "data" {
		t.Errorf("got %v", out)
	}
	if err := d.unmountPod(t.Context(), "u1", true); err != nil {
		t.Error(err)
	}
	if !exists(t, filepath.Join(outside, "keep")) || mode(t, outside).Perm() != 0o700 || exists(t, d.pod("u1")) {
		t.Error("the link was followed")
	}
}

func TestMountRefusesForGood(t *testing.T) {
	medium, pages, badName := volumestest.EmptyDirVolume("v"), volumestest.EmptyDirVolume("v"), volumestest.EmptyDirVolume("..")
	medium.EmptyDir.Medium = "Paper"
	pages.EmptyDir.Medium = "HugePages-2Mi"
	fc := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{}}}
	for _, c := range []struct {
		uid   string
		pod   *v1.Pod
		names string
	}{
		{"u", volumestest.PodWith("u", medium), "medium"},
		{"u", volumestest.PodWith("u", pages), "HugePages-2Mi"},
		{"u", volumestest.PodWith("u", fc), "fc"},
		{"u", volumestest.PodWith("u", badName), ".."},
		{"../u", volumestest.PodWith("../u"), "UID"},
		{"", volumestest.PodWith(""), "UID"},
	} {
		t.Run(c.names, func(t *testing.T) {
			out := newDisk(t).mountPod(t.Context(), c.uid, c.pod)
			if len(out.failures()) != 1 || !out.failures()[0].permanent || !strings.Contains(out.failures()[0].message, c.names) {
				t.Errorf("got %+v, want one permanent failure that names %s", out.failures(), c.names)
			}
		})
	}
}

func TestVolumesThatNobodyUsesAreLeftAlone(t *testing.T) {
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("used"), volumestest.EmptyDirVolume("init"), volumestest.EmptyDirVolume("debug"))
	pod.Spec.InitContainers = []v1.Container{{Name: "i", VolumeMounts: []v1.VolumeMount{{Name: "init"}}}}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "e", VolumeMounts: []v1.VolumeMount{{Name: "debug"}},
	}}}
	pod.Spec.Containers[0].VolumeMounts = pod.Spec.Containers[0].VolumeMounts[:1]
	pod.Spec.Volumes = append(pod.Spec.Volumes, volumestest.HostPathVolume("unused", "/nowhere/at/all", v1.HostPathFile))
	out := newDisk(t).mountPod(t.Context(), "u", pod)
	if len(out.failures()) > 0 || len(out.paths()) != 3 || out.paths()["unused"] != "" {
		t.Errorf("got %+v", out)
	}
}

func TestEveryFailureIsReported(t *testing.T) {
	d := newDisk(t)
	out := d.mountPod(t.Context(), "u", volumestest.PodWith("u", volumestest.HostPathVolume("a", "/nowhere/a", v1.HostPathFile),
		volumestest.EmptyDirVolume("fine"), volumestest.HostPathVolume("b", "/nowhere/b", v1.HostPathFile)))
	if len(out.failures()) != 2 || out.failures()[0].volume != "a" || out.failures()[1].volume != "b" {
		t.Errorf("got %+v", out.failures())
	}
}

func TestUnmount_WithoutRemoveKeepsTheFolder(t *testing.T) {
	d := newDisk(t)
	host := filepath.Join(t.TempDir(), "host")
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("data"), volumestest.HostPathVolume("host", host, v1.HostPathDirectoryOrCreate))
	path := d.mountPod(t.Context(), "u", pod).paths()["data"]
	write(t, filepath.Join(path, "a/b"))
	write(t, d.pod("u/other"))
	for range 2 {
		if err := d.unmountPod(t.Context(), "u", false); err != nil {
			t.Error(err)
		}
	}
	if exists(t, path) || exists(t, d.pod("u/plugins/kubernetes.io~empty-dir/data")) {
		t.Error("the emptyDir is still there")
	}
	if !exists(t, d.pod("u/other")) || !exists(t, host) {
		t.Error("too much is gone")
	}
	if err := d.unmountPod(t.Context(), "u", true); err != nil || exists(t, d.pod("u")) || !exists(t, host) {
		t.Errorf("left %v", err)
	}
	for _, uid := range []string{"u", "never", "../u", ""} {
		if err := d.unmountPod(t.Context(), uid, true); err != nil {
			t.Errorf("%q: left %v", uid, err)
		}
	}
}

// While anything is mounted in a pod's folder, the folder stays complete, and the error names the mount.
func TestUnmountNeverCrossesAMount(t *testing.T) {
	for _, c := range []struct {
		name, target string
		survives     bool // the content of the emptyDir
		mount        func(t *testing.T, target string)
	}{
		{"another kind's", "u/volumes/kubernetes.io~nfs/pvc/mount", false, volumestest.MountFolder},
		{"on an emptyDir", "u/volumes/kubernetes.io~empty-dir/data", true, volumestest.MountFolder},
		{"memory on an emptyDir", "u/volumes/kubernetes.io~empty-dir/data", true, volumestest.MountTmpfs},
		{"a part of memory on an emptyDir", "u/volumes/kubernetes.io~empty-dir/data", true, volumestest.MountMemoryFolder},
		{"in an emptyDir", "u/volumes/kubernetes.io~empty-dir/data/sub", true, volumestest.MountFolder},
		{"on a ConfigMap", "u/volumes/kubernetes.io~configmap/data", false, volumestest.MountTmpfs},
		{"on one of memory", "u/volumes/kubernetes.io~empty-dir/memory", false, volumestest.MountTmpfs},
		{"on the pod's folder", "u", true, volumestest.MountFolder},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			link := filepath.Join(t.TempDir(), "root") // the root directory may be a link
			must(t, os.Symlink(d.rootDir, link))
			d.rootDir = link
			pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("data"), volumestest.MemoryVolume("memory"))
			d.mountPod(t.Context(), "u", pod)
			write(t, d.pod("u/volumes/kubernetes.io~nfs/pvc/vol_data.json"))
			must(t, os.MkdirAll(d.pod(c.target), 0o755))
			for i := range 20 { // so many that a removal would reach one before the mount
				write(t, d.pod("u/volumes/kubernetes.io~empty-dir/data", fmt.Sprint(i)))
			}
			c.mount(t, d.pod(c.target))
			write(t, d.pod(c.target, "keep"))
			err := d.unmountPod(t.Context(), "u", true)
			if err == nil || !strings.Contains(err.Error(), d.pod(c.target)) {
				t.Errorf("left %v does not name %s", err, d.pod(c.target))
			}
			if !exists(t, d.pod(c.target, "keep")) {
				t.Error("what is mounted was removed")
			}
			if c.target != "u" && !exists(t, d.pod("u/volumes/kubernetes.io~nfs/pvc/vol_data.json")) {
				t.Error("what another kind of volume noted was removed")
			}
			must(t, volumestest.UnmountNow(d.pod(c.target)))
			if got, err := os.ReadDir(d.pod("u/volumes/kubernetes.io~empty-dir/data")); c.survives &&
				(err != nil || len(got) < 20) {
				t.Errorf("of the volume %d entries are left, %v", len(got), err)
			}
			must(t, os.RemoveAll(d.pod("u/volumes/kubernetes.io~nfs/pvc")))
			if err := d.unmountPod(t.Context(), "u", true); err != nil || exists(t, d.pod("u")) {
				t.Errorf("after unmounting: left %v", err)
			}
		})
	}
}

func TestListPods(t *testing.T) {
	d := newDisk(t)
	must(t, os.MkdirAll(d.pod("b"), 0o750))
	must(t, os.MkdirAll(d.pod("a"), 0o750))
	write(t, d.pod("file"))
	must(t, os.Symlink("a", d.pod("link")))
	got, err := d.podFolders()
	must(t, err)
	if strings.Join(got, " ") != "a b" {
		t.Errorf("got %q", got)
	}
}

// The agent's files in the folder of a finished pod are removed or truncated, which frees their disk space. The end of a
// termination log stays, because it is read.
func TestFinishedPod_FilesAreTruncated(t *testing.T) {
	d := newDisk(t)
	d.mountPod(t.Context(), "u1", volumestest.PodWith("u1"))
	must(t, os.MkdirAll(d.pod("u1/containers/c"), 0o750))
	long, short, outside := d.pod("u1/containers/c/00000001"), d.pod("u1/containers/c/00000000"), filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(long, []byte(strings.Repeat("x", 1<<20)+"the last word"), 0o600))
	must(t, os.WriteFile(outside, []byte(strings.Repeat("y", 1<<20)), 0o600))
	must(t, os.Symlink(outside, d.pod("u1/containers/c/link")))
	must(t, os.WriteFile(short, []byte("short"), 0o600))
	must(t, os.WriteFile(d.pod("u1/etc-hosts"), []byte(strings.Repeat("z", 1<<20)), 0o600))
	for range 2 { // a repeated unmount changes nothing
		must(t, d.unmountPod(t.Context(), "u1", false))
		text, err := os.ReadFile(long)
		if must(t, err); len(text) != 4096 || !strings.HasSuffix(string(text), "x"+"the last word") {
			t.Errorf("%d bytes are left of the termination log", len(text))
		}
		if text, _ := os.ReadFile(short); string(text) != "short" || exists(t, d.pod("u1/etc-hosts")) {
			t.Errorf("%q, and etc-hosts is there: %v", text, exists(t, d.pod("u1/etc-hosts")))
		}
		if info, err := os.Stat(outside); err != nil || info.Size() != 1<<20 {
			t.Errorf("a file outside was cut: %v %v", info, err)
		}
	}
}
