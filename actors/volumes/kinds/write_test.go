package kinds

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// seen returns a volume as a container sees it: its names, and the content of its files.
func seen(t testing.TB, path string) map[string]string {
	out := map[string]string{}
	must(t, filepath.WalkDir(filepath.Join(path, dataLink)+"/", func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		out[strings.TrimPrefix(at, filepath.Join(path, dataLink)+"/")] = read(t, at)
		return nil
	}))
	return out
}

// emptyVolume is the folder of a pod, and the path of the empty volume "v" in it.
func emptyVolume(t *testing.T) (Folder, string) {
	pods, err := OpenPods(t.TempDir())
	must(t, err)
	defer func() { must(t, pods.Close()) }()
	p, err := MakePod(pods, "u", &v1.Pod{})
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	must(t, p.MkdirAll("volumes/v", 0o755))
	return p, filepath.Join(p.Path(), "volumes/v")
}

func TestWriteFilesAfterACrashAnywhere(t *testing.T) {
	p, path := emptyVolume(t)
	content := func(pairs ...string) map[string]file {
		out := map[string]file{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = file{data: []byte(pairs[i+1]), mode: 0o644}
		}
		return out
	}
	must(t, writeFiles(p, "volumes/v", content("a", "1", "dir/b", "2", "old", "3")))
	// A crash can leave an incomplete folder, a link that is not renamed, and missing names.
	must(t, os.Mkdir(filepath.Join(path, "..2000_01_01_00_00_00.half"), 0o755))
	write(t, filepath.Join(path, "..2000_01_01_00_00_00.half/a"))
	must(t, os.Symlink("..2000_01_01_00_00_00.half", filepath.Join(path, newDataLink)))
	must(t, os.Remove(filepath.Join(path, "a")))
	for _, want := range []map[string]string{
		{"a": "1", "dir/b": "2", "old": "3"}, {"a": "9", "dir/c": "2"}, {"a": "9", "dir/c": "3", "dir2/x": ""}, {},
	} {
		pairs := []string{}
		for k, v := range want {
			pairs = append(pairs, k, v)
		}
		must(t, writeFiles(p, "volumes/v", content(pairs...)))
		if got := seen(t, path); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		names, err := os.ReadDir(path)
		must(t, err)
		var visible []string
		for _, n := range names {
			if !strings.HasPrefix(n.Name(), "..") {
				visible = append(visible, n.Name())
			}
		}
		tops := map[string]bool{}
		for k := range want {
			tops[top(k)] = true
		}
		if !slices.Equal(visible, slices.Sorted(maps.Keys(tops))) || len(names) != len(visible)+2 {
			t.Errorf("the folder has %v", names)
		}
	}
}

// A failed write leaves nothing, at any retry, and the remains of a crash take no room from the next write.
func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	p, path := emptyVolume(t)
	volumestest.MountTmpfs(t, path) // of 64 KiB
	content := func(size int) map[string]file {
		return map[string]file{"a": {data: []byte("small")}, "b": {data: make([]byte, size)}}
	}
	must(t, writeFiles(p, "volumes/v", content(1)))
	want, err := p.Names("volumes/v")
	must(t, err)
	for range 3 {
		if err := writeFiles(p, "volumes/v", content(100<<10)); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("written without room: %v", err)
		}
		if got, err := p.Names("volumes/v"); err != nil || len(got) != len(want) {
			t.Errorf("there are %v, %v, want %v", got, err, want)
		}
	}
	if got := seen(t, path); got["a"] != "small" || len(got["b"]) != 1 {
		t.Errorf("the volume holds %q", got)
	}
	must(t, os.Mkdir(filepath.Join(path, "..2000_01_01_00_00_00.half"), 0o755))
	must(t, os.WriteFile(filepath.Join(path, "..2000_01_01_00_00_00.half/b"), make([]byte, 40<<10), 0o644))
	must(t, writeFiles(p, "volumes/v", content(30<<10)))
}

func TestTheLaterOfTwoFilesCounts(t *testing.T) {
	must(t, checkPaths([]string{"x", "y/x", "y/z", "x"}))
}

// TestWriteFiles_KeepsOthersNames has folders of a container's subPath. Their names may begin like the agent's.
func TestWriteFiles_KeepsOthersNames(t *testing.T) {
	p, path := emptyVolume(t)
	kept := []string{"..backup", "..2026", "..2026_01_02_03_04_05.", "..2026_13_02_03_04_05.x", "..9999_01_02_03_04_05-x", "..."}
	for _, name := range kept {
		write(t, filepath.Join(path, name, "precious"))
	}
	for _, data := range []string{"1", "2"} {
		must(t, writeFiles(p, "volumes/v", map[string]file{"a": {data: []byte(data), mode: 0o644}}))
	}
	for _, name := range kept {
		if !exists(t, filepath.Join(path, name, "precious")) {
			t.Errorf("%s is removed", name)
		}
	}
	names, err := p.Names("volumes/v")
	must(t, err)
	if len(names) != len(kept)+3 { // a, ..data and the folder that it leads to
		t.Errorf("the folder has %q", names)
	}
	must(t, os.MkdirAll(filepath.Join(path, newDataLink, "precious"), 0o755))
	if err := writeFiles(p, "volumes/v", map[string]file{"a": {data: []byte("3")}}); err == nil {
		t.Error("a folder in the way of the link is no error")
	}
	if !exists(t, filepath.Join(path, newDataLink, "precious")) || seen(t, path)["a"] != "2" {
		t.Errorf("the volume has %v", seen(t, path))
	}
}
