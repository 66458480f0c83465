package hooks

import (
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

// recordVersion is the version of the format of Record.
const recordVersion = 1

// Record is a file in a container's folder with the state of one of its hooks.
type Record struct {
	ID string `json:"id"` // of the container
	// Failed is the reason of the failure of a post-start hook that has ended.
	Failed string `json:"failed,omitempty"`
}

// Save writes the record. It creates the container's folder if it is missing.
func (r Record) Save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.Save(path, recordVersion, r)
}

// RecordOf returns the record of the container with that ID. It returns false if the record is missing or cannot be read.
func RecordOf(path, id string) (Record, bool) {
	var r Record
	err := atomicfile.Load(path, recordVersion, &r)
	return r, err == nil && r.ID == id
}
