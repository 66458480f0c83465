package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links the kernel follows in one path (path_resolution(7)).
const maxLinks = 40

// trace follows path, which must be absolute, one name after the other as the kernel does, through symbolic links at any
// place. Before it looks at a name it calls watch with the folder and the name: so whatever changes after the look is
// seen by the watch. It returns where path leads and what is there; an error is of fs.ErrNotExist or as the kernel
// has it.
func trace(path string, watch func(dir, name string)) (string, fs.FileInfo, error) {
	at, rest, links := "/", split(path), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		watch(at, name)
		here := filepath.Join(at, name)
		info, err := os.Lstat(here)
		if err != nil {
			return here, nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = here
			continue
		}
		if links++; links > maxLinks {
			return here, nil, &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(here)
		if err != nil {
			return here, nil, err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(split(target), rest...)
	}
	info, err := os.Lstat(at) // it may have ended on ".."
	return at, info, err
}

func split(path string) []string {
	var out []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}
