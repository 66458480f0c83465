package streams

import "testing"

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
