package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// trustAfter is how long a file must have been left alone before it was read, for its identity to be proof of its
// content from then on: file systems keep times in steps of up to two seconds (FAT).
const trustAfter = 3 * time.Second

// manner is how a manifest is looked at.
type manner struct {
	event   bool // something happened to it
	done    bool // a writer was heard to be done with it
	recheck bool // the regular check is due
}

// observe looks at the manifest that s was found in the place of.
func (r *reader) observe(path string, s sight, now time.Time, how manner) {
	m := r.files[path]
	if m == nil {
		m = &entry{path: path}
		r.files[path] = m
	}
	o, touched, news := r.outcome(m, s, now, how)
	if !news {
		return
	}
	had := len(m.documents) > 0
	switch m.apply(o, now, touched) {
	case replaced:
		r.dirty = true
	case removed:
		r.dirty = r.dirty || had
		delete(r.files, path)
	case nothing, pending:
	}
}

// outcome reads the manifest where that can bring news.
func (r *reader) outcome(m *entry, s sight, now time.Time, how manner) (o outcome, touched, news bool) {
	switch {
	case s.err != nil && errors.Is(s.err, fs.ErrNotExist) && s.link:
		return brokenBy(m.path, errors.New("it is a link that leads to nothing")), false, true
	case s.err != nil && errors.Is(s.err, fs.ErrNotExist), s.err == nil && s.info.IsDir():
		m.id = wholefile.Identity{}
		return outcome{grade: gone}, false, true
	case s.err != nil:
		return brokenBy(m.path, s.err), false, true
	}
	id := wholefile.IdentityOf(s.info)
	touched = id != m.id
	overdue := m.overdue(now)
	if !touched && !how.event && !overdue && (!how.recheck || m.trusted()) {
		return outcome{}, false, false
	}
	m.id, m.readAt = id, now
	data, err := wholefile.Reading{Done: how.done, Insist: overdue && !touched, Now: now}.Read(s.real)
	if err != nil {
		m.last = nil
	}
	switch {
	case errors.Is(err, wholefile.ErrBusy):
		return outcome{grade: busy}, touched, true
	case errors.Is(err, fs.ErrNotExist):
		return outcome{grade: gone}, touched, true
	case err != nil:
		return brokenBy(m.path, err), touched, true
	}
	v := r.parsed(m, data)
	if len(v.problems) > 0 {
		return outcome{broken, *v}, touched, true
	}
	return outcome{good, *v}, touched, true
}

// trusted says whether the file's identity is proof that its content is the one that was read.
func (m *entry) trusted() bool {
	return m.last != nil && m.readAt.Sub(m.id.Touched()) >= trustAfter
}

func brokenBy(path string, err error) outcome {
	problem := messages.ManifestProblem{Path: path, Message: "it cannot be read: " + reasonOf(err)}
	return outcome{broken, version{problems: []messages.ManifestProblem{problem}}}
}

// parsed is what the content says. The same content gives the same pods, and so does content that says the same of a
// pod as is in force, the time when it was seen first included.
func (r *reader) parsed(m *entry, data []byte) *version {
	sum := sha256.Sum256(data)
	if m.last != nil && m.sum == sum {
		return m.last
	}
	pods, problems := r.parseSafely(m.path, data)
	before := make([]*v1.Pod, 0, len(m.documents))
	for _, d := range m.documents {
		before = append(before, d.Pod)
	}
	pods = base.KeepUnchanged(before, pods)
	v := assemble(pods, problems, shapeOf(data))
	m.sum, m.last = sum, &v
	return m.last
}

// parseSafely keeps a panic of the parser from taking all manifests with it: the one that it met it at is a problem.
func (r *reader) parseSafely(path string, data []byte) (pods []*v1.Pod, problems []messages.ManifestProblem) {
	defer func() {
		if p := recover(); p != nil {
			pods = nil
			problems = []messages.ManifestProblem{{Path: path,
				Message: fmt.Sprintf("reading it fails by a bug of the agent: %v", p)}}
		}
	}()
	pods, problems = r.parse(path, data)
	return pods, problems
}
