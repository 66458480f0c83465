package submit

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/messages"
)

// departedVersion is the format version of the file of departed pods.
const departedVersion = 1

// departedFile returns the path of the file with the departed pods. It is not a record, as it lacks the suffix.
func (j *journal) departedFile() string { return filepath.Join(j.opts.Dir, "departed") }

// departures is the content of the file: by UID, the grace period in seconds given with the withdrawal; nil is the pod's own.
type departures map[string]*int64

// loadDeparted returns the departed pods on disk. A damaged file is reported and kept aside.
func (j *journal) loadDeparted() (on departures, err error) {
	err = atomicfile.Load(j.departedFile(), departedVersion, &on)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, useless := errors.AsType[*atomicfile.UnreadableError](err); useless {
		j.report(messages.ManifestProblem{Path: j.departedFile(), Warning: true,
			Message: "the list of withdrawn pods cannot be read; one that still runs is left alone: end it with playlet rm: " +
				err.Error()})
		return nil, nil
	}
	return on, err
}

// depart records on disk that the pod of old leaves the journal, unless it is the pod of r; nil means no record. It comes
// before the record is replaced or removed: a pod with a record is desired, departed or not.
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
	on := departures{}
	for uid := range j.departed.UIDs() {
		on[uid] = nil
		if grace, ok := j.graces[uid]; ok {
			on[uid] = &grace
		}
	}
	err := atomicfile.Save(j.departedFile(), departedVersion, on)
	if err == nil && len(on) == 0 {
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

// prune drops the departed pods that have ended, and writes the list again if the disk lacks it.
func (j *journal) prune() (state, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.loaded = j.loaded && !j.lost && !j.away && j.marked
	if err := j.load(); err != nil {
		return j.state(), err
	}
	if j.isUnmounted() {
		return j.state(), nil // a record in the plain folder would be hidden once the journal is mounted
	}
	if j.lost {
		j.settle()
	}
	if changed := j.departed.Prune(j.opts.Clock.Now(), j.opts.Board, messages.Submit); changed || j.unsaved {
		gone := j.departed.UIDs()
		maps.DeleteFunc(j.graces, func(uid string, _ int64) bool { return !gone[uid] })
		j.version++
		_ = j.saveDeparted() // the next check retries a failure
	}
	return j.state(), nil
}
