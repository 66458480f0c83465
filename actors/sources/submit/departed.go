package submit

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/messages"
)

// departedVersion is the version of the shape of the file of departed pods.
const departedVersion = 1

// departedFile is the file with the UIDs of departed pods. It is no record: those end with suffix.
func (j *journal) departedFile() string { return filepath.Join(j.opts.Dir, "departed") }

// loadDeparted returns the UIDs that are on the disk. A file that is damaged is reported and kept aside.
func (j *journal) loadDeparted() (uids []string, err error) {
	err = atomicfile.Load(j.departedFile(), departedVersion, &uids)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, useless := errors.AsType[*atomicfile.UnreadableError](err); useless {
		j.report(messages.ManifestProblem{Path: j.departedFile(), Warning: true,
			Message: "the list of withdrawn pods cannot be " +
				"read; such a pod ends later if another submission is damaged, too: " + err.Error()})
		return nil, nil
	}
	return uids, err
}

// depart records on disk that the pod of old leaves the journal, and that of r does not; nil means no record. It comes before
// the record is replaced or removed: a pod with a record is wanted, departed or not.
func (j *journal) depart(old, r *record) error {
	before, named := map[string]bool{}, map[string]bool{}
	if old != nil {
		before[string(old.Pod.UID)] = true
	}
	if r != nil {
		named[string(r.Pod.UID)] = true
	}
	if !j.departed.Update(j.opts.Clock.Now(), before, named) {
		return nil
	}
	return j.saveDeparted()
}

func (j *journal) saveDeparted() error {
	uids := slices.Sorted(maps.Keys(j.departed.UIDs()))
	err := atomicfile.Save(j.departedFile(), departedVersion, uids)
	if err == nil && len(uids) == 0 {
		err = atomicfile.Remove(j.departedFile())
	}
	j.unsaved = err != nil
	return err
}

// named returns the UIDs of the records' pods.
func (j *journal) named() map[string]bool {
	out := map[string]bool{}
	for _, r := range j.records {
		out[string(r.Pod.UID)] = true
	}
	return out
}

// prune forgets the departed pods that are over, and writes the list again if the disk lacks it.
func (j *journal) prune() (state, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return j.state(), err
	}
	if changed := j.departed.Prune(j.opts.Clock.Now(), j.opts.Board, messages.Submit); changed || j.unsaved {
		j.version++
		_ = j.saveDeparted() // where it fails the next check tries again
	}
	return j.state(), nil
}
