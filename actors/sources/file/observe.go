package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// observe looks at the manifest that s was found in the place of. event says that something may have happened to it, done that a
// writer was heard to be done with it.
func (r *reader) observe(path string, s sight, now time.Time, event, done bool) {
	m := r.files[path]
	if m == nil {
		m = &entry{path: path}
		r.files[path] = m
	}
	o, touched, news := r.outcome(m, s, now, event, done)
	if !news {
		return
	}
	had := len(m.documents) > 0
	changed, removed := m.apply(o, now, touched)
	r.dirty = r.dirty || changed || removed && had
	if removed {
		delete(r.files, path)
	}
}

// outcome reads the manifest where that can bring news.
func (r *reader) outcome(m *entry, s sight, now time.Time, event, done bool) (o outcome, touched, news bool) {
	switch {
	case errors.Is(s.err, fs.ErrNotExist) && s.link:
		return outcome{broken, brokenBy(m.path, errors.New("it is a link that leads to nothing"))}, false, true
	case errors.Is(s.err, fs.ErrNotExist), s.err == nil && s.info.IsDir():
		m.id = wholefile.Identity{}
		return outcome{grade: gone}, false, true
	case s.err != nil:
		return outcome{broken, brokenBy(m.path, s.err)}, false, true
	}
	id := wholefile.IdentityOf(s.info)
	touched = id != m.id
	overdue := m.overdue(now)
	if !touched && !event && !overdue {
		return outcome{}, false, false
	}
	m.id = id
	data, err := readManifest(wholefile.Reading{Done: done, Insist: overdue && !touched, Now: now}, s.real)
	if err != nil {
		m.last = nil
	}
	switch {
	case errors.Is(err, wholefile.ErrBusy):
		return outcome{grade: busy}, touched, true
	case errors.Is(err, fs.ErrNotExist):
		return outcome{grade: gone}, touched, true
	case err != nil:
		return outcome{broken, brokenBy(m.path, err)}, touched, true
	}
	v := r.parsed(m, data)
	if v.faulty() {
		return outcome{broken, *v}, touched, true
	}
	return outcome{good, *v}, touched, true
}

// errEmpty is the problem with a file that was cut off before its first byte: that does not mean that its pods are to end.
var errEmpty = errors.New("it is empty; remove it to end its pods")

func readManifest(how wholefile.Reading, path string) ([]byte, error) {
	data, err := how.Read(path)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		return nil, errEmpty
	}
	return data, err
}

// brokenBy is the version of a manifest that cannot be read for this.
func brokenBy(path string, err error) version {
	if err == nil {
		return version{}
	}
	p := messages.ManifestProblem{Path: path, Message: "it cannot be read: " + reasonOf(err)}
	return version{problems: []problem{{p, -1}}}
}

// parsed is what the content says. The same content gives the same pods, and so does content that says the same of a
// pod as is in force, the time when it was seen first included.
func (r *reader) parsed(m *entry, data []byte) *version {
	sum := sha256.Sum256(data)
	if m.last != nil && m.sum == sum {
		return m.last
	}
	v := r.parseSafely(m.path, data)
	for i, pod := range base.KeepUnchanged(podsOf(m.documents), podsOf(v.documents)) {
		v.documents[i].Pod = pod
	}
	m.sum, m.last = sum, &v
	return m.last
}

func podsOf(documents []document) []*v1.Pod {
	out := make([]*v1.Pod, 0, len(documents))
	for _, d := range documents {
		out = append(out, d.Pod)
	}
	return out
}

// parseSafely keeps a panic of the parser from taking all manifests with it: the one that it met it at is a problem.
func (r *reader) parseSafely(path string, data []byte) (v version) {
	defer func() {
		if p := recover(); p != nil {
			v = version{problems: []problem{{messages.ManifestProblem{Path: path,
				Message: fmt.Sprintf("reading it fails by a bug of the agent: %v", p)}, -1}}}
		}
	}()
	return r.opts.parse(path, data)
}

// parser reads the pods of one manifest: decoded, defaulted, validated, with UID; and what is wrong with the others. It shares
// nothing between the pods of two calls, and is called from one worker at a time.
type parser func(path string, data []byte) version

// manifestParser parses as the kubelet and the API server together would.
func manifestParser(node base.Node, now clock.PassiveClock) parser {
	return func(path string, data []byte) version {
		all := manifest.LoadEach(path, data, node.Manifest(manifest.FileSource, now.Now()))
		v := version{count: len(all)}
		for i, one := range all {
			if one.Pod != nil {
				v.documents = append(v.documents, document{one.Pod, i})
			}
			for _, p := range base.Problems(one.Problems) {
				v.problems = append(v.problems, problem{p, i})
			}
		}
		return v
	}
}
