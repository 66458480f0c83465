package submit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// If the journal's folder was removed, or its file system is not mounted, the journal looks empty. Therefore each journal has a
// marker. A journal without the marker and without records is lost: running pods of submissions are left alone until they are
// submitted again or withdrawn. The first journal of a node counts as lost, too, until the board shows that no such pod runs.
// Journals of earlier versions have records and no marker.

// marker is the content of the marker file.
type marker struct {
	// Lost is set while the journal may lack records of pods that run.
	Lost bool `json:"lost"`
}

const markerVersion = 1

func (j *journal) markerFile() string { return filepath.Join(j.opts.Dir, "journal") }

// keptInMemory is the problem of a journal that disappeared while the agent runs.
const keptInMemory = "the journal of submissions is gone, and is known here: mount its file system, or submit any pod, which " +
	"writes all of it again"

// keptUnmounted is the problem of a journal on a file system that is not mounted.
const keptUnmounted = "the file system of the journal of submissions is not mounted: its pods are known here and go on, and " +
	"nothing is accepted that would be hidden once it is mounted again: mount it, or restart the agent to begin another journal"

// errUnmounted refuses a change of the journal.
var errUnmounted = errors.New(keptUnmounted)

// isUnmounted reports whether another file system than the journal's is at its folder, without a journal. A folder that was
// removed is no such case: its parent folders are on the same file system.
func (j *journal) isUnmounted() bool {
	if j.device == 0 || !j.marked || base.DeviceAt(j.opts.Dir) == j.device {
		return false
	}
	_, err := os.Lstat(j.markerFile())
	return errors.Is(err, fs.ErrNotExist)
}

// keepInMemory records that the journal on disk is gone, so that the one in memory stays in force.
func (j *journal) keepInMemory(problem string) error {
	j.returned()
	j.report(messages.ManifestProblem{Path: j.opts.Dir, Message: problem, KeptLast: true})
	j.loaded, j.away = true, true
	j.version++
	return nil
}

// readMarker returns the marker on disk, and whether there is one. A damaged one is of a journal with records. entries are the
// files of the journal.
func (j *journal) readMarker(entries []os.DirEntry) (m marker, found bool, err error) {
	err = atomicfile.Load(j.markerFile(), markerVersion, &m)
	_, useless := errors.AsType[*atomicfile.UnreadableError](err)
	switch {
	case err == nil:
		return m, true, nil
	case !useless && !errors.Is(err, fs.ErrNotExist):
		return m, false, err
	}
	whole := func(e os.DirEntry) bool {
		return strings.Contains(e.Name(), suffix) || e.Name() == filepath.Base(j.departedFile())
	}
	return marker{Lost: !useless && !slices.ContainsFunc(entries, whole)}, false, nil
}

// mark writes the marker. A failure is retried with the next check.
func (j *journal) mark() error {
	err := atomicfile.Save(j.markerFile(), markerVersion, marker{j.lost})
	j.marked = err == nil
	return err
}

// rewrite makes the folder, and writes all records again if the journal on disk is gone. If another file system with a journal is
// mounted there, rewrite reads it.
func (j *journal) rewrite() error {
	if j.isUnmounted() {
		_ = j.keepInMemory(keptUnmounted)
		return errUnmounted
	}
	if err := atomicfile.MakeDir(j.opts.Dir); err != nil {
		return err
	}
	_, err := os.Lstat(j.markerFile())
	if j.device != 0 && (j.device != base.DeviceAt(j.opts.Dir) || j.away && err == nil) {
		j.loaded = false
		return j.load()
	}
	if !j.marked || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, r := range j.records {
		if err := atomicfile.Save(r.key().file(j.opts.Dir), recordVersion, r); err != nil {
			return err
		}
	}
	j.returned()
	return j.mark()
}

// returned records that the journal on disk is not gone.
func (j *journal) returned() {
	j.away = false
	j.problems = slices.DeleteFunc(slices.Clone(j.problems), func(p messages.ManifestProblem) bool {
		return p.Path == j.opts.Dir
	})
}

// settle ends the loss once no pod is left alone for it.
func (j *journal) settle() {
	if b := j.opts.Board; b == nil || !b.Now().Complete() || len(j.spared()) > 0 {
		return
	}
	j.lost = false
	j.version++
	_ = j.mark() // the next check retries a failure
}

// spared returns the running pods that are left alone because the journal has no usable record of them.
func (j *journal) spared() (out []board.SparedPod) {
	if j.opts.Board == nil {
		return nil
	}
	for _, p := range j.opts.Board.Now().Spared {
		if p.Source == messages.Submit {
			out = append(out, p)
		}
	}
	return out
}

// withdrawSpared withdraws a running pod without a usable record. It returns nil if there is none of that name, which may be the
// manifest's or the pod's.
func (j *journal) withdrawSpared(m messages.WithdrawPod) any {
	for _, p := range j.spared() {
		full := m.Namespace + "/" + m.Name
		if p.Name != full && p.Name != manifest.StaticName(full, j.opts.Node.NodeName) {
			continue
		}
		if !m.DryRun {
			if err := j.rewrite(); errors.Is(err, errUnmounted) {
				return j.refusal(err)
			}
			j.departed.Add(j.opts.Clock.Now(), p.UID)
			if m.Grace != nil {
				j.graces[p.UID] = *m.Grace
			}
			if err := j.saveDeparted(); err != nil && !errors.Is(err, atomicfile.ErrNoSpace) {
				return j.refusal(err)
			}
			j.version++
			if k, is := j.damaged(m); is {
				if err := j.discard(k); err != nil {
					return j.refusal(err)
				}
			}
		}
		_, name, _ := strings.Cut(p.Name, "/")
		return messages.PodWithdrawn{Pod: messages.SubmittedPod{Namespace: m.Namespace, Name: m.Name, PodName: name, UID: p.UID,
			Change: messages.PodDeleted}}
	}
	return nil
}

// withdrawDamaged removes a damaged record whose pod does not run. It returns nil if there is none of that name, which may be the
// manifest's or the pod's.
func (j *journal) withdrawDamaged(m messages.WithdrawPod) any {
	k, is := j.damaged(m)
	if !is {
		return nil
	}
	if !m.DryRun {
		if err := j.rewrite(); errors.Is(err, errUnmounted) {
			return j.refusal(err)
		}
		if err := j.discard(k); err != nil {
			return j.refusal(err)
		}
	}
	return messages.PodWithdrawn{Pod: messages.SubmittedPod{Namespace: k.namespace, Name: k.name,
		PodName: manifest.StaticName(k.name, j.opts.Node.NodeName), Change: messages.PodDeleted}}
}

// damaged returns the key of the damaged record of that name, if there is one.
func (j *journal) damaged(m messages.WithdrawPod) (k key, is bool) {
	for _, k := range j.keys(m.Namespace, m.Name, m.Exact) {
		path := k.file(j.opts.Dir)
		isOf := func(p messages.ManifestProblem) bool { return p.Path == path }
		if j.records[k] == nil && slices.ContainsFunc(j.problems, isOf) {
			return k, true
		}
	}
	return key{}, false
}

// discard removes a damaged record, also the one that was kept aside, and its problem.
func (j *journal) discard(k key) error {
	if err := atomicfile.Remove(k.file(j.opts.Dir)); err != nil {
		return err
	}
	j.mended(k)
	j.version++
	return nil
}
