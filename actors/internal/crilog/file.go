package crilog

import (
	"io/fs"
	"os"
)

// readable is an open file of a log, and what it was when it was opened.
type readable struct {
	*os.File
	info fs.FileInfo
}
