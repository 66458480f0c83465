package base

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DeviceAt returns the device of a file or, if that does not exist, of the nearest folder above it; 0 if it is unknown.
func DeviceAt(path string) uint64 {
	var st unix.Stat_t
	for errors.Is(unix.Stat(path, &st), unix.ENOENT) && path != "/" {
		path = filepath.Dir(path)
	}
	return st.Dev
}
