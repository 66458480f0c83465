package hooks

import (
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

// recordVersion is the version of the shape of Record.
const recordVersion = 1

// Record is a file in a container's folder with the state of one of its hooks.
type Record struct {
	ID string `json:"id"` // of the container
	// Failed is why a post-start hook failed that has ended.
	Failed string `json:"failed,omitempty"`
}

// Save writes the record. The container's folder is made if it is missing.
func (r Record) Save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.Save(path, recordVersion, r)
}

// RecordOf returns the record of the container with that ID, and whether it is there and can be read.
func RecordOf(path, id string) (Record, bool) {
	var r Record
	err := atomicfile.Load(path, recordVersion, &r)
	return r, err == nil && r.ID == id
}
