package submit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// journal holds the accepted submissions, on disk and in memory. The process has one. Safe for concurrent use.
type journal struct {
	opts Options

	mu       sync.Mutex // held during every change, including the write
	loaded   bool       // memory and disk agree
	version  uint64     // counts the changes; 0 is before the first read
	records  map[key]*record
	graces   map[string]int64           // of departed pods, by UID, in seconds; the pod's own if absent
	problems []messages.ManifestProblem // damaged records, until their pods are submitted again or withdrawn
	departed base.Departures            // withdrawn or replaced pods that may still run
	unsaved  bool                       // the disk lacks the newest departures
	lost     bool                       // records of running pods may be missing; see lost.go
	marked   bool                       // the marker is on disk
	away     bool                       // the journal on disk is gone, and memory has it
	device   uint64                     // of the folder when memory and disk last agreed; 0: unknown
}

// state is the journal at one time. Immutable.
type state struct {
	version  uint64
	records  []*record // by namespace and name
	problems []messages.ManifestProblem
	graces   map[string]int64
	gone     map[string]bool // departed pods, by UID
	lost     bool
	watch    bool // the disk has to be read again with each check
}

// loaded reports whether the journal has been read.
func (s state) loaded() bool { return s.version > 0 }

func newJournal(opts Options) *journal {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &journal{opts: opts, graces: map[string]int64{}}
}

// open reads the journal from disk, whatever is in memory.
func (j *journal) open() (state, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.loaded = false
	err := j.load()
	return j.state(), err
}

// now returns the current state.
func (j *journal) now() state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state()
}

func (j *journal) state() state {
	if j.version == 0 {
		return state{}
	}
	return state{version: j.version, lost: j.lost, watch: j.lost || j.away || !j.marked, problems: slices.Clone(j.problems),
		graces: maps.Clone(j.graces), gone: j.departed.UIDs(),
		records: slices.SortedFunc(maps.Values(j.records), func(a, b *record) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})}
}

// load reads the disk unless memory is known to agree. A damaged record is reported and kept aside, and affects no other; if
// memory has it, it is written again. A record that cannot be read now may be intact. Until it can be read, the state in
// memory stays. Without one, the state is unknown.
func (j *journal) load() error {
	if j.loaded {
		return nil
	}
	if j.isUnmounted() {
		return j.keepInMemory(keptUnmounted)
	}
	if err := atomicfile.MakeDir(j.opts.Dir); err != nil && !errors.Is(err, atomicfile.ErrNoSpace) {
		return err // on a full disk without a journal, nothing was accepted
	}
	entries, err := os.ReadDir(j.opts.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if j.readBack(entries) {
		if entries, err = os.ReadDir(j.opts.Dir); err != nil {
			return err
		}
	}
	mark, marked, err := j.readMarker(entries)
	if err != nil {
		return err
	}
	if mark.Lost && !marked && j.marked && len(j.records) > 0 {
		return j.keepInMemory(keptInMemory)
	}
	device := base.DeviceAt(j.opts.Dir)
	other := j.device != 0 && (j.device != device || j.away) // it may be older
	records := map[key]*record{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), suffix) {
			continue // half written, or kept aside
		}
		path := filepath.Join(j.opts.Dir, e.Name())
		r, damage, err := loadRecord(path, j.opts.Node.NodeName)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case damage != nil:
			if r = j.salvage(path, damage); r == nil {
				continue
			}
		}
		if old := j.records[r.key()]; old != nil && old.Pod.UID == r.Pod.UID && old.Accepted.Equal(r.Accepted) {
			r = old // pods are shared by pointer
		}
		if r.former != "" { // it ends, since the record is of its successor
			j.departed.Add(j.opts.Clock.Now(), r.former)
		}
		records[r.key()] = r
	}
	for _, e := range entries {
		path := filepath.Join(j.opts.Dir, strings.TrimSuffix(e.Name(), atomicfile.AsideSuffix))
		known := func(r *record) bool { return r.key().file(j.opts.Dir) == path }
		if strings.HasSuffix(e.Name(), suffix+atomicfile.AsideSuffix) &&
			!slices.ContainsFunc(slices.Collect(maps.Values(records)), known) {
			j.report(messages.ManifestProblem{Path: path, Message: keptAside})
		}
	}
	departed, err := j.loadDeparted()
	if err != nil {
		return err
	}
	if j.lost && !mark.Lost || other {
		if err := j.merge(records); err != nil {
			return err
		}
	}
	j.returned()
	j.records, j.loaded, j.lost, j.device = records, true, mark.Lost, device
	if j.marked = marked; !marked {
		_ = j.mark() // the next check retries a failure
	}
	for uid, grace := range departed {
		j.departed.Add(j.opts.Clock.Now(), uid)
		if _, known := j.graces[uid]; grace != nil && !known {
			j.graces[uid] = *grace
		}
	}
	if j.departed.Update(j.opts.Clock.Now(), nil, j.named()) {
		_ = j.saveDeparted() // the next change or check retries a failure
	}
	j.version++
	return nil
}

// merge brings a journal that was lost and has returned up to date: submissions that were accepted meanwhile are newer, and pods
// that were withdrawn meanwhile stay so.
func (j *journal) merge(records map[key]*record) error {
	gone := j.departed.UIDs()
	for k, r := range records {
		if gone[string(r.Pod.UID)] && j.records[k] == nil {
			if err := atomicfile.Remove(k.file(j.opts.Dir)); err != nil {
				return err
			}
			delete(records, k)
		}
	}
	for k, r := range j.records {
		old := records[k]
		if old != nil && !r.Accepted.After(old.Accepted) {
			continue
		}
		if err := atomicfile.Save(k.file(j.opts.Dir), recordVersion, r); err != nil {
			return err
		}
		if old != nil && old.Pod.UID != r.Pod.UID {
			j.departed.Add(j.opts.Clock.Now(), string(old.Pod.UID))
		}
		records[k] = r
	}
	return nil
}

// readBack moves records back that an agent of another version kept aside, e.g. after a rollback, and reports whether there were
// some. A submission that was accepted again since is newer, and removed the one that was kept aside.
func (j *journal) readBack(entries []os.DirEntry) (any bool) {
	for _, e := range entries {
		path, aside := strings.CutSuffix(filepath.Join(j.opts.Dir, e.Name()), atomicfile.AsideSuffix)
		if !aside || !strings.HasSuffix(path, suffix) {
			continue
		}
		back, err := atomicfile.ReadBack(path, recordVersion)
		switch {
		case err != nil:
			slog.Warn("a submission that was set aside cannot be restored", "path", path, "error", err)
		case back:
			slog.Info("restored a submission that another version of the agent had set aside", "path", path)
		}
		any = any || back
	}
	return any
}

// keptAside is the problem with a record that an earlier process found damaged.
const keptAside = "a submission is damaged and was kept aside; its pod goes on if it runs: submit it again, or end the pod " +
	"with playlet rm"

// report adds a problem, unless its file already has one.
func (j *journal) report(p messages.ManifestProblem) {
	if !slices.ContainsFunc(j.problems, func(o messages.ManifestProblem) bool { return o.Path == p.Path }) {
		j.problems = append(j.problems, p)
	}
}

// salvage reports a damaged record file. If memory has the record, salvage returns it and writes it again.
func (j *journal) salvage(path string, damage error) *record {
	p := messages.ManifestProblem{Path: path, Message: "a submission cannot be read: " + damage.Error()}
	var known *record
	for k, r := range j.records {
		if k.file("") != filepath.Base(path) {
			continue
		}
		known, p.KeptLast = r, true
		if err := atomicfile.Save(path, recordVersion, r); err != nil { // it stays desired while the agent runs
			p.Message += "; it is known here, and cannot be written again: " + err.Error()
		}
	}
	j.report(p)
	return known
}

// mended removes the problem of a record that is intact on disk again, or absent.
func (j *journal) mended(k key) {
	path := k.file(j.opts.Dir)
	_ = os.Remove(path + atomicfile.AsideSuffix) // a failure is reported at the next start
	j.problems = slices.DeleteFunc(slices.Clone(j.problems), func(p messages.ManifestProblem) bool { return p.Path == path })
}

// put stores r as the record of its pod, on disk first. After a failure the content of the disk is unknown, and is read
// again.
func (j *journal) put(r *record) error {
	err := j.rewrite()
	if err == nil {
		err = j.depart(j.records[r.key()], r)
	}
	if err == nil {
		err = atomicfile.Save(r.key().file(j.opts.Dir), recordVersion, r)
	}
	if err != nil {
		return j.reloadAfter(err)
	}
	j.records[r.key()] = r
	delete(j.graces, string(r.Pod.UID))
	j.mended(r.key())
	j.version++
	return nil
}

// remove removes r from the disk, then from memory.
func (j *journal) remove(r *record) error {
	err := j.rewrite()
	if err == nil || errors.Is(err, atomicfile.ErrNoSpace) {
		err = errors.Join(err, j.depart(r, nil))
	}
	if err != nil && !errors.Is(err, atomicfile.ErrNoSpace) { // the removal makes room
		return j.reloadAfter(err)
	}
	if err := atomicfile.Remove(r.key().file(j.opts.Dir)); err != nil {
		return j.reloadAfter(err)
	}
	if j.unsaved {
		_ = j.saveDeparted() // the next check retries a failure
	}
	delete(j.records, r.key())
	j.mended(r.key())
	j.version++
	return nil
}

// reloadAfter reads the disk again after it has failed with err.
func (j *journal) reloadAfter(err error) error {
	j.loaded = false
	_ = j.load() // a failure is retried before the next use
	return err
}

// refusal returns the answer to a request after a disk failure.
func (j *journal) refusal(err error) messages.SubmissionRefused {
	if errors.Is(err, atomicfile.ErrNoSpace) {
		return messages.SubmissionRefused{Why: messages.RefusedNoSpace, Message: fmt.Sprintf(
			"the disk of %s is full; nothing that was accepted before is lost: make room there and send it again", j.opts.Dir)}
	}
	if errors.Is(err, errUnmounted) {
		return messages.SubmissionRefused{Why: messages.RefusedFailure, Message: j.opts.Dir + ": " + keptUnmounted}
	}
	return messages.SubmissionRefused{Why: messages.RefusedFailure, Message: fmt.Sprintf(
		"the journal of submissions in %s fails, so that it is not known what it keeps; send it again when that is mended: %v",
		j.opts.Dir, err)}
}
