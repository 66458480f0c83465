package streams

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestTarsFailuresAreTranslated(t *testing.T) {
	for said, want := range map[string]string{
		"tar: ./none: No such file or directory":                                               "there is no /etc/none in the container",
		"tar: ./none: Cannot stat: No such file or directory tar: Exiting with failure status": "there is no /etc/none in the container",
		"tar: can't change directory to '/nope': No such file or directory":                    "there is no /nope in the container",
		"tar: /nope: Cannot open: No such file or directory":                                   "there is no /nope in the container",
		"tar: can't open 'motd': Permission denied":                                            "the container's user may not read or write /etc/motd",
		"tar: motd: Cannot open: Permission denied":                                            "the container's user may not read or write /etc/motd",
		"tar: can't open 'motd': Read-only file system":                                        "/etc/motd is on a read-only file system",
		"tar: can't change directory to '/etc/motd': Not a directory":                          "/etc/motd is not a folder in the container",
		"tar: write error: No space left on device":                                            "no space is left in the container",
		"tar: a riddle": "tar in the container exited with code 2: tar: a riddle",
	} {
		if got := tarFailure(said, 2, "/etc"); got != want {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
}

// A container that sends errors or links without end fills no memory.
func TestCopy_Endless(t *testing.T) {
	said := stderrCapture{Writer: io.Discard}
	for range 100 {
		if n, err := said.Write(make([]byte, 1<<16)); n != 1<<16 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(said.said) != maxHeard {
		t.Errorf("%d bytes are kept, want %d", len(said.said), maxHeard)
	}
	r, w := io.Pipe()
	go func() {
		archive := tar.NewWriter(w)
		err := archive.WriteHeader(&tar.Header{Name: "d", Typeflag: tar.TypeDir, Mode: 0o755})
		for i := 0; err == nil; i++ {
			err = archive.WriteHeader(&tar.Header{Name: fmt.Sprint("d/", i), Typeflag: tar.TypeSymlink, Linkname: "x"})
		}
	}()
	u := unpacker{note: func(string) {}}
	err := u.unpack(r, "d", t.TempDir()+"/d")
	if err == nil || !strings.Contains(err.Error(), "more than 200000 symbolic links") {
		t.Errorf("links without end: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
