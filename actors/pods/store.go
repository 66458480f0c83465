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

// record is the checkpoint of one pod. The pointed-to values are immutable.
type record struct {
	// Final is the last status. A pod with one never runs again.
	Final *v1.PodStatus `json:"final,omitempty"`
	// Fail is the failure decided by the node. It is written before anything of the pod is ended, so that an agent that is killed
	// in between neither lets the pod run on nor chooses another.
	Fail *messages.PodFailure `json:"fail,omitempty"`
	// Cause is the cause of a refusal.
	Cause messages.Cause `json:"cause,omitzero"`
	// Allocated is the allocation after a resize. It is written before the resize begins, so that an agent that is killed in
	// between completes it.
	Allocated *podspec.Allocation `json:"allocated,omitempty"`
}

const (
	recordVersion = 1                // the format of one pod's file
	writeTimeout  = 15 * time.Second // for one write; a disk may hang
	saveTimeout   = 2 * writeTimeout
)

// store keeps one file per pod with a record, so that the cost of a write does not grow with the number of pods. It belongs to
// the process: writes of an earlier life of the actor never run beside, or after, the writes of this one.
type store struct {
	dir     string // the folder "records" in the agent's folder of checkpoints
	writing *overdue.Writer[map[string]record]
	mu      sync.Mutex
	written map[string]record // the content of the disk, by UID
	aside   map[string]bool   // pods with a record that was kept aside
	back    map[string]bool   // pods with a record that was read back
}

// checkpoints writes the records to the disk, one write at a time.
type checkpoints struct {
	*store
	busy    bool   // a write is in progress
	saves   uint64 // number of requests to save
	problem string // a sentence about the last failure; empty: none
	full    bool   // the last write failed because the disk is full
}

// failed reports whether the disk is out of date and no write is in progress.
func (c *checkpoints) failed() bool { return !c.busy && c.problem != "" }

// filesError is the error about files of pods that could not be written or removed.
type filesError struct {
	uids map[string]bool
	last error
}

func (u *filesError) Error() string {
	if len(u.uids) == 1 {
		return u.last.Error()
	}
	return fmt.Sprintf("%d files, the last: %v", len(u.uids), u.last)
}

func (u *filesError) Unwrap() error { return u.last }

func newStore(dir string) *store {
	s := &store{dir: filepath.Join(dir, "records"), written: map[string]record{}, aside: map[string]bool{},
		back: map[string]bool{}}
	s.writing = overdue.NewWriter("the checkpoints of pods", writeTimeout, s.write)
	return s
}

func (s *store) path(uid string) string { return filepath.Join(s.dir, uid+".json") }

// write replaces the content of the disk by these records.
func (s *store) write(records map[string]record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := atomicfile.MakeDir(s.dir); err != nil {
		return err
	}
	failed := filesError{uids: map[string]bool{}}
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
			s.dropAside(uid)
		}
	}
	for uid := range s.written {
		if records[uid] == (record{}) && done(uid, atomicfile.Remove(s.path(uid))) {
			delete(s.written, uid)
			s.dropAside(uid)
		}
	}
	if failed.last != nil {
		return &failed
	}
	return nil
}

// dropAside removes the record that was kept aside of a pod with a newer record. A failure is of no consequence.
func (s *store) dropAside(uid string) {
	if s.aside[uid] {
		delete(s.aside, uid)
		_ = os.Remove(s.path(uid) + atomicfile.AsideSuffix)
	}
}

// readBack moves records back that an agent of another version kept aside, e.g. after a rollback. The caller holds the lock.
func (s *store) readBack(files []os.DirEntry) (any bool, errs []error) {
	for _, f := range files {
		uid, ok := strings.CutSuffix(f.Name(), ".json"+atomicfile.AsideSuffix)
		if !ok {
			continue
		}
		back, err := atomicfile.ReadBack(s.path(uid), recordVersion)
		if err != nil {
			errs = append(errs, err)
		}
		if s.back[uid], s.aside[uid] = back, !back; back {
			any = true
		}
	}
	return any, errs
}

// takeBack returns, once, the pods with a record that was read back. Such a pod may have run again since, under the agent that
// kept its record aside.
func (s *store) takeBack() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	back := s.back
	s.back = map[string]bool{}
	return back
}

// load returns the newest records of an earlier life of the actor, which may not be on disk, or else the records on disk.
// Unreadable files are kept aside and named by the errors. Files of this version that another one kept aside are read back.
func (s *store) load() (records map[string]record, written bool, errs []error) {
	if newest, ok := s.writing.Newest(); ok {
		return newest, false, nil
	}
	records = map[string]record{}
	files, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	again, backErrs := s.readBack(files)
	if errs = append(errs, backErrs...); again {
		if files, err = os.ReadDir(s.dir); err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range files {
		uid, ok := strings.CutSuffix(f.Name(), ".json")
		switch r := (record{}); {
		case strings.HasSuffix(f.Name(), ".tmp"): // of an interrupted write
			err = os.Remove(filepath.Join(s.dir, f.Name()))
		case !ok:
			continue // a file kept aside
		default:
			if err = atomicfile.Load(s.path(uid), recordVersion, &r); err == nil {
				records[uid] = r
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	s.written = maps.Clone(records)
	return records, true, errs
}
