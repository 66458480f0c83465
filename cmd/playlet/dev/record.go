package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/network"
)

// Record lists everything that a run creates on the machine. It is written first, so that the next run can undo a killed one.
type Record struct {
	// ID distinguishes the objects of this run from all others; their names contain it.
	ID string `json:"id"`
	// Boot is the boot of the run: after another one, only its files exist.
	Boot string `json:"boot"`
	// Outer and Init are the processes that hold all others; Init is zero until it was started.
	Outer Identity `json:"outer"`
	Init  Identity `json:"init"`

	// Dir is the absolute path of the run's folder. Temporary means that all of it may be removed.
	Dir       string `json:"dir"`
	Temporary bool   `json:"temporary"`
	// Marked means that the folder has a mark, which runs of earlier versions did not write.
	Marked bool `json:"marked,omitempty"`
	// Sample is the text that was written as the sample's manifest; empty when there were manifests already.
	Sample string `json:"sample,omitempty"`
	// Folders were made on the machine, parents before children; they are removed where they are empty.
	Folders []string `json:"folders,omitempty"`
	// AdminSocket is the agent's.
	AdminSocket string `json:"adminSocket"`

	network.Changes

	// Controllers are the machine's controllers of cgroups of version 2 that were not enabled for its cgroups. Groups are the
	// cgroups at its root before the run.
	Controllers []string `json:"controllers,omitempty"`
	Groups      []string `json:"groups,omitempty"`
}

// Name returns the name of this run's cgroups, CNI network and rules of iptables.
func (r *Record) Name() string { return namePrefix + r.ID }

const namePrefix = "playlet-dev-"

// errRuns is the error of openStore while another run is active.
var errRuns = errors.New("playlet dev runs already")

// store keeps the record of the one run that there can be at a time, in a folder that root alone can write to. It is
// locked for as long as the run's process lives; the kernel gives the lock back however that ends.
type store struct {
	dir  string
	lock *os.File
}

// openStore takes the lock.
func openStore(dir string) (*store, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, "lock")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the one before us has just removed the folder
		}
		if err != nil {
			return nil, err
		}
		s := &store{dir, f}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(s.inUse(err), f.Close())
		}
		// The one before us may have removed the file between our opening and our locking it.
		mine, err1 := f.Stat()
		found, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, found) {
			return s, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

func (s *store) inUse(err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("locking %s: %w", s.lock.Name(), err)
	}
	r, err := s.load()
	if err != nil || r == nil {
		return errRuns
	}
	return fmt.Errorf("%w: process %d, in %s; end that one first", errRuns, r.Outer.PID, r.Dir)
}

func (s *store) path() string { return filepath.Join(s.dir, "record.json") }

// load gives the record, nil when there is none.
func (s *store) load() (*Record, error) {
	data, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w; remove it by hand, and what it names", s.path(), err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it by hand", s.path(), err)
	}
	return r, nil
}

// check rejects a record that would remove more than a run creates.
func (r *Record) check() error {
	if r.ID == "" || strings.Trim(r.ID, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("an ID of %q", r.ID)
	}
	for _, path := range append([]string{r.Dir, r.AdminSocket}, r.Folders...) {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
			return fmt.Errorf("a path of %q", path)
		}
	}
	if r.Temporary && filepath.Base(r.Dir) != r.Name() {
		return fmt.Errorf("a temporary folder of %q", r.Dir)
	}
	return r.Changes.Check()
}

func (s *store) save(r *Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(s.path(), data, 0o600)
}

// close forgets the record when all it names is undone, and gives back the lock.
func (s *store) close(undone bool) error {
	var errs []error
	if undone {
		for _, path := range []string{s.path(), unfinished(s.path()), s.lock.Name(), s.dir} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// writeFile replaces a file whole or not at all. Root alone can write to its folder.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(unfinished(path), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// unfinished returns the file that an interrupted writeFile of this path leaves. It must be removed together with path.
func unfinished(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}
