// Package crilog reads, names and rotates the log files that a container runtime writes. It parses their lines and reads a log
// together with its rotated files.
//
// k8s.io/cri-client/pkg/logs does not serve: it reads only the newest file, opens it by its path, follows links that a pod may
// have created, keeps a line of any length in memory, and exports no parser of lines.
package crilog

import (
	"io/fs"
	"os"
)

// Dir is an open folder of logs. Its methods do not follow links out of the folder, nor a link as the last element: a pod with
// write access to the folder could have created one. Names are relative to the folder.
type Dir interface {
	// Names lists the folder at name, in any order.
	Names(name string) ([]string, error)
	// OpenBeneath opens with the flags of openat(2).
	OpenBeneath(name string, flags int, mode fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	// Rename moves a file and replaces the target.
	Rename(from, to string) error
	// Unlink removes a file or link, but no folder.
	Unlink(name string) error
}
