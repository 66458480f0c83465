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

// rewrite makes the folder, and writes all records again if the journal on disk is gone.
func (j *journal) rewrite() error {
	if err := atomicfile.MakeDir(j.opts.Dir); err != nil {
		return err
	}
	_, err := os.Lstat(j.markerFile())
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
func (j *journal) spared() (out []board.Spared) {
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
			j.departed.Add(j.opts.Clock.Now(), p.UID)
			if m.Grace != nil {
				j.graces[p.UID] = *m.Grace
			}
			if err := j.saveDeparted(); err != nil && !errors.Is(err, atomicfile.ErrNoSpace) {
				return j.refusal(err)
			}
			j.version++
		}
		_, name, _ := strings.Cut(p.Name, "/")
		return messages.PodWithdrawn{Pod: messages.SubmittedPod{Namespace: m.Namespace, Name: m.Name, PodName: name, UID: p.UID,
			Change: messages.PodDeleted}}
	}
	return nil
}
