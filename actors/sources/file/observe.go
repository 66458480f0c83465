package file

import (
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

// observe reads the manifest at path, where s was found. event means that something may have happened to it; done, that a
// writer closed it.
func (r *reader) observe(path string, s manifestFile, now time.Time, event, done bool) {
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

// outcome reads the manifest if that can bring a change.
func (r *reader) outcome(m *entry, s manifestFile, now time.Time, event, done bool) (o outcome, touched, news bool) {
	switch {
	case errors.Is(s.err, fs.ErrNotExist) && s.link:
		return outcome{fileInvalid, brokenBy(m.path, errToNothing)}, false, true
	case errors.Is(s.err, fs.ErrNotExist), s.err == nil && s.info.IsDir():
		m.id = wholefile.Identity{}
		return outcome{state: fileMissing}, false, true
	case s.err != nil:
		return outcome{fileInvalid, brokenBy(m.path, s.err)}, false, true
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
		return outcome{state: fileBusy}, touched, true
	case errors.Is(err, fs.ErrNotExist):
		return outcome{state: fileMissing}, touched, true
	case err != nil:
		return outcome{fileInvalid, brokenBy(m.path, err)}, touched, true
	}
	v := r.parsed(m, data)
	if v.faulty() {
		return outcome{fileInvalid, *v}, touched, true
	}
	return outcome{fileGood, *v}, touched, true
}

// errEmpty is the problem with a file that was cut off before its first byte. Its pods do not end.
var errEmpty = errors.New("it is empty; remove it to end its pods")

func readManifest(how wholefile.Reading, path string) ([]byte, error) {
	data, err := how.Read(path)
	if err == nil && manifest.Empty(data) {
		return nil, errEmpty
	}
	return data, err
}

// brokenBy returns the version of a manifest that cannot be read because of err.
func brokenBy(path string, err error) version {
	if err == nil {
		return version{}
	}
	p := messages.ManifestProblem{Path: path, Message: "it cannot be read: " + reasonOf(err)}
	return version{problems: []problem{{p, -1}}}
}

// parsed returns the version of the content. The same content returns the same pods. A pod equal to the one in force keeps
// its object, including its first-seen time.
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

// parseSafely confines a panic of the parser to its manifest, which gets a problem.
func (r *reader) parseSafely(path string, data []byte) (v version) {
	defer func() {
		if p := recover(); p != nil {
			v = version{problems: []problem{{messages.ManifestProblem{Path: path,
				Message: fmt.Sprintf("reading it fails by a bug of the agent: %v", p)}, -1}}}
		}
	}()
	return r.opts.parse(path, data)
}

// parser reads the pods of one manifest: decoded, defaulted, validated, with UID; and the problems of the others. Two calls
// share no pods. Only one worker calls it at a time.
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
