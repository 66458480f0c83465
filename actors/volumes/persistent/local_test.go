package persistent

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// Two pods that wait for the same slow folder each bind it with a descriptor of their own.
func TestBindFolder_PodsShareNoDescriptor(t *testing.T) {
	volumestest.NeedMounts(t)
	server := t.TempDir()
	slow := fusetest.Mount(t, server)
	pods, err := kinds.OpenPods(t.TempDir())
	must(t, err)
	defer func() { must(t, pods.Close()) }()
	ended := make(chan error, 2)
	slow.Hang()
	for _, uid := range []string{"a", "b"} {
		must(t, pods.MkdirAll(uid, 0o755))
		root, err := safepath.OpenRoot(filepath.Join(pods.Path(), uid))
		must(t, err)
		defer func() { must(t, root.Close()) }()
		go func() {
			ended <- bindFolder(t.Context(), kinds.Folder{Root: root, Pod: volumestest.PodWith(uid)}, "volume",
				filepath.Join(server, fusetest.Folder), "pv")
		}()
	}
	for waiting := 0; waiting < 2; {
		waiting = 0
		stacks := make([]byte, 1<<20)
		for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "persistent.bindFolder(") && strings.Contains(stack, " [select") {
				waiting++
			}
		}
		runtime.Gosched()
	}
	slow.Resume()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	want, err := os.Stat(filepath.Join(server, fusetest.Folder))
	must(t, err)
	for _, uid := range []string{"a", "b"} {
		at := filepath.Join(pods.Path(), uid, "volume")
		t.Cleanup(func() { must(t, volumestest.UnmountNow(at)) })
		if got, err := os.Stat(at); err != nil || !os.SameFile(got, want) {
			t.Errorf("pod %s does not have the folder: %v", uid, err)
		}
	}
}

func TestCheckUnmounted_DetachesWhatADriverLeftDead(t *testing.T) {
	volumestest.NeedMounts(t)
	dir := t.TempDir()
	root, err := safepath.OpenRoot(dir)
	must(t, err)
	defer func() { must(t, root.Close()) }()
	at := filepath.Join(dir, "mount")
	must(t, os.Mkdir(at, 0o755))
	s := fusetest.Mount(t, at)
	if err := checkUnmounted(t.Context(), root, "mount"); err == nil || !strings.Contains(err.Error(), "left") {
		t.Errorf("a live mount: got %v", err)
	}
	s.Die()
	must(t, checkUnmounted(t.Context(), root, "mount"))
	if is, err := root.IsMountPoint("mount"); err != nil || is {
		t.Errorf("the dead mount: still there %t, error %v", is, err)
	}
}
