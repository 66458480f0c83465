package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
)

// record is what is kept of one pod on the disk. What it points to is immutable.
type record struct {
	// Final is its last status: it is never run again.
	Final *v1.PodStatus `json:"final,omitempty"`
	// Fail is why the node ends it. It is written before anything of the pod is ended, so that an agent that is killed meanwhile
	// neither lets the pod run on nor chooses another.
	Fail *messages.PodFailure `json:"fail,omitempty"`
	// Cause is why the pod was refused.
	Cause messages.Cause `json:"cause,omitzero"`
	// Allocated is what the pod has of the node, once it was resized. It is written before any of it is changed, so that an agent
	// that is killed meanwhile ends what was begun.
	Allocated *podspec.Allocation `json:"allocated,omitempty"`
}

const (
	recordVersion = 1                // the format of one pod's file
	writeTimeout  = 15 * time.Second // for one write; a disk may hang
	saveTimeout   = 2 * writeTimeout
)

// store has one file for each pod of which something is kept, so that what is written for one does not grow with their number.
// It is the process's: what an earlier life of the actor writes is never beside, or after, what this one does.
type store struct {
	dir     string // the folder, in that of the agent's checkpoints
	writing *overdue.Writing[map[string]record]
	mu      sync.Mutex
	written map[string]record // what the disk has, by UID
}

// checkpoints is the records' way to the disk: one write at a time.
type checkpoints struct {
	*store
	busy    bool   // a write is under way
	saves   uint64 // how often it was asked for
	problem string // a sentence on why the last one failed; empty: it did not
}

// failed says that the disk lacks something, and that nobody tries to write it.
func (c *checkpoints) failed() bool { return !c.busy && c.problem != "" }

// unwritten is the error of pods whose files could not be written or removed.
type unwritten struct {
	uids map[string]bool
	last error
}

func (u *unwritten) Error() string {
	if len(u.uids) == 1 {
		return u.last.Error()
	}
	return fmt.Sprintf("%d files, the last: %v", len(u.uids), u.last)
}

func (u *unwritten) Unwrap() error { return u.last }

func newStore(dir string) *store {
	s := &store{dir: filepath.Join(dir, "records"), written: map[string]record{}}
	s.writing = overdue.NewWriting("the checkpoints of pods", writeTimeout, s.write)
	return s
}

func (s *store) path(uid string) string { return filepath.Join(s.dir, uid+".json") }

// write makes the disk have these records and no others.
func (s *store) write(records map[string]record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := atomicfile.MakeDir(s.dir); err != nil {
		return err
	}
	failed := unwritten{uids: map[string]bool{}}
	done := func(uid string, err error) bool {
		if err != nil {
			failed.uids[uid], failed.last = true, err
		}
		return err == nil
	}
	for uid, r := range records {
		if s.written[uid] == r {
			continue
		}
		err := messages.CheckUID(uid)
		if err == nil {
			err = atomicfile.Save(s.path(uid), recordVersion, r)
		}
		if done(uid, err) {
			s.written[uid] = r
		}
	}
	for uid := range s.written {
		if records[uid] == (record{}) && done(uid, atomicfile.Remove(s.path(uid))) {
			delete(s.written, uid)
		}
	}
	if failed.last != nil {
		return &failed
	}
	return nil
}

// load gives the records: what an earlier life of the actor wanted written, which may not be on the disk, or else what the disk
// has. Files that cannot be read are kept aside, and named by the errors.
func (s *store) load() (records map[string]record, written bool, errs []error) {
	if newest, ok := s.writing.Newest(); ok {
		return newest, false, nil
	}
	records = map[string]record{}
	files, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, f := range files {
		uid, ok := strings.CutSuffix(f.Name(), ".json")
		switch r := (record{}); {
		case strings.HasSuffix(f.Name(), ".tmp"): // of a write that was cut off
			err = os.Remove(filepath.Join(s.dir, f.Name()))
		case !ok:
			continue // it was kept aside
		default:
			if err = atomicfile.Load(s.path(uid), recordVersion, &r); err == nil {
				records[uid] = r
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	s.mu.Lock()
	s.written = maps.Clone(records)
	s.mu.Unlock()
	return records, true, errs
}
