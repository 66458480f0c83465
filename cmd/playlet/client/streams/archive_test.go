package streams

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archiveOf makes an archive of "NAME", "NAME/" (a folder), "NAME -> TARGET" and "NAME => TARGET" (a hard link).
func archiveOf(t *testing.T, entries ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e, Mode: 0o4755, Typeflag: tar.TypeReg, Size: int64(len(e))}
		for arrow, kind := range map[string]byte{" -> ": tar.TypeSymlink, " => ": tar.TypeLink, " | ": tar.TypeFifo} {
			if name, target, ok := strings.Cut(e, arrow); ok {
				h.Name, h.Linkname, h.Typeflag, h.Size = name, target, kind, 0
			}
		}
		if strings.HasSuffix(e, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(e)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// found lists a folder as archiveOf takes it.
func found(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		below, _ := filepath.Rel(dir, file)
		switch {
		case below == ".":
		case e.IsDir():
			out = append(out, below+"/")
		case e.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(file)
			out = append(out, below+" -> "+target)
		default:
			out = append(out, below)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever a container sends, nothing is written outside the target, and no link leads out of it.
func TestUnpack(t *testing.T) {
	for _, c := range []struct {
		name    string
		archive []string
		target  string
		want    []string
		failed  string
		notes   int
	}{
		{"a file, by a new name", []string{"./f"}, "new", []string{"new"}, "", 0},
		{"a file into a folder", []string{"./f"}, "there", []string{"there/f"}, "", 0},
		{"a folder, by a new name", []string{"./f/", "./f/a", "./f/d/", "./f/d/b"}, "new", []string{"new/", "new/a", "new/d/", "new/d/b"}, "", 0},
		{"a folder into a folder", []string{"f/", "f/a"}, "there/", []string{"there/f/", "there/f/a"}, "", 0},
		{"links", []string{"f/", "f/a", "f/d/", "f/d/l -> ../a", "f/h => f/a", "f/x -> gone"}, "new",
			[]string{"new/", "new/a", "new/d/", "new/d/l -> ../a", "new/h", "new/x -> gone"}, "", 0},
		{"a link that is absolute", []string{"f/", "f/l -> /etc/passwd"}, "new", []string{"new/"}, "", 1},
		{"a link that leads out", []string{"f/", "f/l -> ../there"}, "new", []string{"new/"}, "", 1},
		{"a link that leads out by another", []string{"f/", "f/a/", "f/a/b/", "f/a/b/s -> ../..", "f/a/b/s/x -> ../../there"}, "new",
			[]string{"new/", "new/a/", "new/a/b/", "new/a/b/s -> ../.."}, "", 1},
		{"a file behind a link", []string{"f/", "f/l -> ../there", "f/l/a"}, "new", []string{"new/"}, "l/a: no such file", 0},
		{"a file behind a link that is there", []string{"f/", "f/out/a"}, "linked", []string{"linked/", "linked/f/", "linked/f/out -> ../../there"},
			"path escapes from parent", 0},
		{"a file in the place of a link", []string{"f/", "f/out"}, "linked", []string{"linked/", "linked/f/", "linked/f/out"}, "", 0},
		{"another file", []string{"../there/a"}, "new", nil, `sends "../there/a", which was not asked for`, 0},
		{"a file above", []string{"f/", "f/../../there/a"}, "new", []string{"new/"}, "which was not asked for", 0},
		{"an absolute file", []string{"/etc/cron.d/a"}, "new", nil, "which was not asked for", 0},
		{"a hard link to another file", []string{"f/", "f/h => /etc/passwd"}, "new", []string{"new/"}, "", 1},
		{"a pipe", []string{"f/", "f/p | "}, "new", []string{"new/"}, "", 1},
		{"a file, and another below it", []string{"f", "f/.bashrc"}, "new", []string{"new"}, "which was not expected there", 0},
		{"a link, and a file below it", []string{"f -> there", "f/a"}, "new", nil, "which was not expected there", 0},
		{"two things", []string{"f", "f"}, "new", []string{"new"}, "which was not expected there", 0},
		{"nothing", nil, "new", nil, "the container has sent nothing", 0},
		{"into a folder that is not there", []string{"f"}, "none/", nil, "the folder none/ is not there", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for _, dir := range []string{"there", "linked", "linked/f"} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("../../there", "linked/f/out"); err != nil {
				t.Fatal(err)
			}
			var notes []string
			u := unpacker{note: func(text string) { notes = append(notes, text) }}
			err := u.unpack(archiveOf(t, c.archive...), "f", c.target)
			if c.failed == "" && err != nil || c.failed != "" && (err == nil || !strings.Contains(err.Error(), c.failed)) {
				t.Errorf("%v, want %q", err, c.failed)
			}
			if len(notes) != c.notes {
				t.Errorf("%q", notes)
			}
			want := append([]string{"there/"}, c.want...)
			if c.target != "linked" {
				want = append(want, "linked/", "linked/f/", "linked/f/out -> ../../there")
			}
			slices.Sort(want)
			got := found(t, ".")
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if info, err := os.Lstat("new"); err == nil && info.Mode()&fs.ModeSetuid != 0 {
				t.Error("it is setuid")
			}
		})
	}
}

// Unpacking restores the packed files.
func TestPack(t *testing.T) {
	t.Chdir(t.TempDir())
	first := []string{"f/", "f/a", "f/d/", "f/d/l -> ../a"}
	u := unpacker{note: func(text string) { t.Error(text) }}
	if err := u.unpack(archiveOf(t, first...), "f", "."); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string][]string{
		"f":     {"copy/", "copy/a", "copy/d/", "copy/d/l -> ../a"},
		"f/d/l": {"copy"}, // the target of the link
	} {
		var out bytes.Buffer
		if err := pack(&out, from, "x", func(text string) { t.Error(text) }); err != nil {
			t.Fatal(err)
		}
		u := unpacker{note: u.note}
		dir := t.TempDir()
		if err := u.unpack(&out, "x", filepath.Join(dir, "copy")); err != nil {
			t.Fatal(err)
		}
		if got := found(t, dir); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := pack(&bytes.Buffer{}, "none", "x", nil); err == nil || err.Error() != "none: no such file or directory" {
		t.Error(err)
	}
}
