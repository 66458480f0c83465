// Package crilog knows the log files that a container runtime writes: how their lines read, how those that were rotated
// away are named, and how to read them all as one.
//
// k8s.io/cri-client/pkg/logs does not serve: it reads the newest file alone, opens it by its path, through links that a pod may
// have put there, keeps a line of any length in memory, and exports no parser of lines.
package crilog

import (
	"io/fs"
	"os"
)

// Dir is an open folder of logs. Its methods follow no link out of it and none as the last element: a pod that may write
// to the folder could have put one there. Names are those of its files.
type Dir interface {
	// Names lists the folder at name, in any order.
	Names(name string) ([]string, error)
	// OpenBeneath opens with the flags of openat(2).
	OpenBeneath(name string, flags int, mode fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	// Rename moves a file in place of what has the new name.
	Rename(from, to string) error
	// Unlink removes a file or link, and no folder.
	Unlink(name string) error
}
