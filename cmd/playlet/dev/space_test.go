package dev

import (
	"path/filepath"
	"testing"
)

func TestEnoughSpace(t *testing.T) {
	dir := t.TempDir()
	const remedy = ": free some space there, or name a folder on another disk with --dir"
	for _, c := range []struct {
		free space
		want string
	}{
		{space{bytes: 256 << 20}, ""},
		{space{bytes: 256 << 20, inodes: 4000, fixed: true}, ""},
		{space{bytes: 20<<20 + 1}, "the disk of " + dir + "/new/one has 20 MiB free, and playlet dev takes 256 MiB" + remedy},
		{space{bytes: 1 << 30, inodes: 12, fixed: true}, "the disk of " + dir + "/new/one has 12 inodes free, and playlet dev takes 4000" +
			remedy},
	} {
		asked := ""
		err := enoughSpace(filepath.Join(dir, "new/one"), func(path string) (space, error) { asked = path; return c.free, nil })
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || asked != dir {
			t.Errorf("%+v of %s:\n%s\nwant\n%s", c.free, asked, got, c.want)
		}
	}
	if err := enoughSpace("/proc/version", func(string) (space, error) { return space{}, nil }); err != nil {
		t.Errorf("a path that is no folder, which the run names: %v", err)
	}
	if s, err := freeSpace(dir); err != nil || s.bytes == 0 {
		t.Errorf("%+v %v", s, err)
	}
}
