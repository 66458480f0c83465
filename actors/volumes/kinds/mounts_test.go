package kinds

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// foreignFolder is a folder of a user with names like the agent's own.
func foreignFolder(t *testing.T, folder string) {
	t.Helper()
	write(t, filepath.Join(folder, "..backup/precious"))
	write(t, filepath.Join(folder, "..2000_01_01_00_00_00.x/precious"))
	must(t, os.Symlink("..data/x", filepath.Join(folder, "link")))
	must(t, os.Chmod(folder, 0o700))
}

// pathsIn returns all paths in a folder with their modes.
func pathsIn(t *testing.T, folder string) (out []string) {
	t.Helper()
	must(t, filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			out = append(out, info.Mode().String()+strings.TrimPrefix(path, folder))
		}
		return err
	}))
	return out
}

func TestMount_WritesNothingIntoAForeignMount(t *testing.T) {
	volumestest.NeedMounts(t)
	bind := func(from string) func(t *testing.T, at string) {
		return func(t *testing.T, at string) {
			volumestest.MountOn(t, at, func() error { return unix.Mount(from, at, "", unix.MS_BIND, "") })
		}
	}
	onDisk, memory := t.TempDir(), t.TempDir()
	volumestest.MountTmpfs(t, memory)
	part := filepath.Join(memory, "part")
	foreignFolder(t, onDisk)
	foreignFolder(t, part)
	for _, volume := range []v1.Volume{
		volumestest.ConfigMapVolume("v", "settings"), volumestest.SecretVolume("v", "password"), downwardVolume("v"),
		{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}}}},
		volumestest.EmptyDirVolume("v"), volumestest.MemoryVolume("v"),
	} {
		for name, foreign := range map[string]struct{ on, folder string }{
			"a folder":                    {"", onDisk},
			"a part of a tmpfs":           {"", part},
			"a tmpfs":                     {"", memory},
			"a folder on the plugin's":    {"..", onDisk},
			"a folder on that of plugins": {"../..", onDisk},
		} {
			for _, written := range []bool{true, false} {
				d := newDisk(t)
				d.node.Objects = &objectset.Board{}
				d.node.Objects.Publish(volumestest.ObjectsOf("red"))
				pod := volumestest.InNamespace(volumestest.PodWith("u", volume))
				var path string
				if written {
					path = mountedAt(t, d, pod)
					// The emptyDir was not complete before a crash.
					must(t, os.RemoveAll(d.pod("u/plugins/kubernetes.io~empty-dir")))
				} else {
					must(t, d.with(t, pod, func(kind Plugin, p Folder, v *v1.Volume) error {
						path = filepath.Join(p.Path(), VolumeFolder(kind.Name(), v.Name))
						return makeFolder(p, VolumeFolder(kind.Name(), v.Name))
					}))
				}
				if foreign.folder == memory && !written && volume.ConfigMap == nil {
					continue // it may be the volume's own
				}
				before := pathsIn(t, foreign.folder)
				bind(foreign.folder)(t, filepath.Join(path, foreign.on))
				d.node.Objects.Publish(volumestest.ObjectsOf("blue"))
				if _, err := d.mount(t, pod); err == nil || !strings.Contains(err.Error(), " is mounted where the agent writes") {
					t.Errorf("%s in a pod with %s (written before: %t): %v", podKind(volume), name, written, err)
				}
				if d.stillMounted(t, pod) {
					t.Errorf("%s below %s counts as mounted", podKind(volume), name)
				}
				if after := pathsIn(t, foreign.folder); !slices.Equal(after, before) {
					t.Errorf("%s: %s had %q and has %q", podKind(volume), name, before, after)
				}
				volumestest.UnmountBelow(t, d.rootDir)
				if _, err := d.mount(t, pod); err != nil {
					t.Errorf("%s after the mount is gone: %v", podKind(volume), err)
				}
			}
		}
	}
}

func podKind(v v1.Volume) string {
	kind, err := PluginFor(All(), &v)
	if err != nil {
		return err.Error()
	}
	return kind.Name()
}

// TestMount_TakesOverMemory mounts the file system of memory as a kubelet does: without a note, and with a size of its own. A
// root directory that is bound to itself and shared shows each mount twice.
func TestMount_TakesOverMemory(t *testing.T) {
	volumestest.NeedMounts(t)
	pages := volumestest.EmptyDirVolume("v")
	pages.EmptyDir.Medium = "HugePages-2Mi"
	for _, bound := range []bool{false, true} {
		for _, volume := range []v1.Volume{volumestest.SecretVolume("v", "password"), volumestest.MemoryVolume("v"), pages} {
			d := newDisk(t)
			d.node.Objects = &objectset.Board{}
			d.node.Objects.Publish(volumestest.ObjectsOf("red"))
			if bound {
				outer := d.rootDir
				bindShared(t, outer)
				d.rootDir = filepath.Join(outer, "kubelet")
				must(t, os.Mkdir(d.rootDir, 0o755))
				volumestest.MountOn(t, d.rootDir, func() error { return unix.Mount(d.rootDir, d.rootDir, "", unix.MS_BIND, "") })
			}
			pod := volumestest.InNamespace(volumestest.PodWith("u", volume))
			kind, options := "tmpfs", "size=1m"
			if volume.EmptyDir == pages.EmptyDir {
				kind, options = "hugetlbfs", "pagesize=2M"
				pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}
			}
			folder := d.pod(filepath.Join("u/volumes", Escaped(podKind(volume)), "v"))
			must(t, os.MkdirAll(folder, 0o755))
			volumestest.MountOn(t, folder, func() error { return unix.Mount(kind, folder, kind, 0, options) })
			must(t, os.Mkdir(filepath.Join(folder, "..2000_01_01_00_00_00.1234"), 0o755))
			for range 2 {
				if path := mountedAt(t, d, pod); path != folder || !d.stillMounted(t, pod) {
					t.Errorf("%s at %s is not mounted", podKind(volume), path)
				}
			}
			if exists(t, filepath.Join(folder, "..2000_01_01_00_00_00.1234")) != (volume.Secret == nil) {
				t.Errorf("%s has another folder than that of the kubelet", podKind(volume))
			}
			d.unmount(t, pod)
		}
	}
}

// bindShared binds a folder to itself, and shares the mounts in it.
func bindShared(t *testing.T, folder string) {
	t.Helper()
	volumestest.MountOn(t, folder, func() error { return unix.Mount(folder, folder, "", unix.MS_BIND, "") })
	must(t, unix.Mount("", folder, "", unix.MS_SHARED, ""))
}

// The kernel may write data back to a hung server before it unmounts. A pod waits until its context ends, later calls join the
// blocked call, and the folder stays until the mount is gone.
func TestRemoveMount_JoinsAnUnmountThatHangs(t *testing.T) {
	volumestest.NeedMounts(t)
	root, err := safepath.OpenRoot(t.TempDir())
	must(t, err)
	defer root.Close() //nolint:errcheck // read only
	p := Folder{Root: root}
	path := filepath.Join(root.Path(), "v")
	must(t, os.Mkdir(path, 0o755))
	volumestest.MountTmpfs(t, path)
	entered, answer := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() { // the kernel in the middle of writing back
		first <- p.Bounded(t.Context(), path, "unmounting "+path, func(*safepath.Root) error {
			close(entered)
			<-answer
			return unix.EBUSY
		})
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RemoveMount(ctx, p, "v"); !errors.Is(err, context.Canceled) || !exists(t, path) {
		t.Errorf("got %v, want the end of the wait, and the folder to stay", err)
	}
	close(answer)
	if err := <-first; !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	must(t, RemoveMount(t.Context(), p, "v"))
	if exists(t, path) {
		t.Error("the folder is left")
	}
}
