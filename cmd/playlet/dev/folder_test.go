package dev

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFoldersThatCannotBeUsedAreRefused(t *testing.T) {
	dir, err := os.MkdirTemp("", "") // a short path, as sockets would lie in it
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	t.Setenv("TMPDIR", dir)
	write(t, filepath.Join(dir, "file"), "")
	write(t, filepath.Join(dir, "used", "containerd.toml"), "")
	write(t, filepath.Join(dir, "mine/manifests/a.yaml"), "")
	must(t, os.Symlink(dir, filepath.Join(dir, "link")))
	must(t, os.Mkdir(filepath.Join(dir, "playlet-dev-taken"), 0o700))
	for _, c := range []struct{ wanted, name, path, refused string }{
		{"", "playlet-dev-a", filepath.Join(dir, "playlet-dev-a"), ""},
		{"", "playlet-dev-taken", "", "is there already"},
		{filepath.Join(dir, "new/below"), "", filepath.Join(dir, "new/below"), ""},
		{filepath.Join(dir, "link/new"), "", filepath.Join(dir, "new"), ""},
		{filepath.Join(dir, "mine"), "", filepath.Join(dir, "mine"), ""},
		{filepath.Join(dir, "file"), "", "", "is not a folder"},
		{filepath.Join(dir, "link"), "", "", "is not a folder"},
		{filepath.Join(dir, "used"), "", "", "contains containerd.toml, which playlet dev did not create"},
		{"/" + strings.Repeat("x", maxFolder), "", "", "is too long"},
	} {
		path, temporary, err := newFolder(c.wanted, c.name)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v, want %q", c.wanted+c.name, err, c.refused)
			}
		} else if err != nil || path != c.path || temporary != (c.wanted == "") {
			t.Errorf("%q: %s, %v, %v", c.wanted+c.name, path, temporary, err)
		}
	}
}

func TestARunsFilesGoAndTheUsersStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	record := &Record{ID: "abc234", Marked: true, Dir: dir, Sample: "sample"}
	var err error
	record.Folders, err = missingFolders(folder(dir).manifests())
	must(t, err)
	must(t, makeFolders(record.Folders))
	f := folder(dir)
	must(t, f.make(record.ID, record.Sample))
	files := map[string]string{"theirs": "1", "manifests/theirs.yaml": "2", "objects/theirs.yaml": "3"}
	for _, name := range contents {
		if files[unfinished(name)] = ""; name != brokenFile && name != greetingFile { // which are there
			files[filepath.Join(name, "x")] = ""
		}
	}
	files[unfinished("manifests/"+sampleFile)] = ""
	for name, text := range files {
		write(t, f.at(name), text)
	}
	must(t, f.remove(record))
	must(t, removeFolders(record.Folders))
	if left := filesIn(t, dir); !slices.Equal(left, []string{"manifests", "manifests/theirs.yaml", "objects",
		"objects/theirs.yaml", "theirs"}) {
		t.Errorf("left: %q", left)
	}
	must(t, f.remove(record)) // nothing of the run is left
	mark := func() { write(t, f.at(markFile), record.ID) }
	must(t, os.Remove(f.at("objects/theirs.yaml")))
	mark()
	must(t, f.remove(record))
	if there(f.at(objectsFolder)) {
		t.Error("an empty folder of objects is there")
	}
	write(t, f.samplePath(), "changed")
	mark()
	must(t, f.remove(record))
	if !there(f.samplePath()) {
		t.Error("a sample that was changed is gone")
	}
	record.Temporary = true
	mark()
	for range 2 {
		must(t, f.remove(record))
	}
	if there(dir) {
		t.Error("a temporary folder is there")
	}
}

// Nothing is removed from a folder that took the place of the run's, nor behind a link. An empty one of a run that was killed
// before it wrote its mark is removed.
func TestFolder_Replaced(t *testing.T) {
	top := t.TempDir()
	victim, record := filepath.Join(top, "victim"), goodRecord()
	record.Dir = filepath.Join(top, record.Name())
	for _, temporary := range []bool{true, false} {
		record.Temporary = temporary
		for _, mark := range []string{"", "another"} {
			write(t, filepath.Join(victim, nodeFolder, "x"), "")
			if mark != "" {
				write(t, filepath.Join(victim, markFile), mark)
			}
			must(t, os.Symlink(victim, record.Dir))
			if err := folder(record.Dir).remove(record); err == nil {
				t.Error("a link was removed")
			}
			must(t, os.Remove(record.Dir))
			must(t, os.Rename(victim, record.Dir))
			if err := folder(record.Dir).remove(record); !errors.Is(err, errReplaced) {
				t.Errorf("of another folder: %v", err)
			}
			must(t, os.Rename(record.Dir, victim))
			if !there(filepath.Join(victim, nodeFolder, "x")) {
				t.Fatal("a user's file is gone")
			}
			must(t, os.RemoveAll(victim))
		}
	}
	must(t, os.Mkdir(record.Dir, 0o700))
	must(t, folder(record.Dir).remove(record))
	if !there(record.Dir) {
		t.Error("the user's empty folder is gone")
	}
	record.Temporary = true
	must(t, folder(record.Dir).remove(record))
	if there(record.Dir) {
		t.Error("the run's empty folder is there")
	}
	record.Marked = false // of an earlier version
	write(t, filepath.Join(record.Dir, nodeFolder, "x"), "")
	must(t, folder(record.Dir).remove(record))
	if there(record.Dir) {
		t.Error("the folder of an earlier version is there")
	}
}

// filesIn lists all below a folder, relative to it.
func filesIn(t *testing.T, dir string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel != "." {
			out = append(out, rel)
		}
		return err
	}))
	return out
}

func TestATemporaryFolderIsRootsAlone(t *testing.T) {
	f := folder(filepath.Join(t.TempDir(), "playlet-dev-x"))
	must(t, f.make("x", "sample"))
	if info, err := os.Stat(string(f)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if text := read(t, f.samplePath()); text != "sample" {
		t.Errorf("the sample is %q", text)
	}
	if os.Geteuid() != 0 {
		t.Skip("another user's folder is not tried: that takes root")
	}
	must(t, os.Chown(string(f), 65534, 65534))
	if err := f.make("x", ""); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("another user's folder: %v", err)
	}
}

func TestFolders_CreatedAndRemovedWhenEmpty(t *testing.T) {
	top := t.TempDir()
	a, b := filepath.Join(top, "a/b/c"), filepath.Join(top, "a/d")
	missing, err := missingFolders(a, b, top)
	if want := []string{filepath.Join(top, "a"), filepath.Join(top, "a/b"), a, b}; err != nil || !slices.Equal(missing, want) {
		t.Fatalf("%q, %v, want %q", missing, err, want)
	}
	must(t, makeFolders(missing))
	must(t, makeFolders(missing))
	write(t, filepath.Join(b, "theirs"), "")
	must(t, removeFolders(missing))
	if left := filesIn(t, top); !slices.Equal(left, []string{"a", "a/d", "a/d/theirs"}) {
		t.Errorf("left: %q", left)
	}
}
