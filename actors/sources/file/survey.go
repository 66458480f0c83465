package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// sight is what was found in the place of a manifest.
type sight struct {
	real string // where it is, without links
	info fs.FileInfo
	err  error
	link bool // it is a link, wherever that leads
}

// survey finds everything anew: where the path leads, which manifests are there, and all folders to be watched for that.
// With recheck it also reads again what may have changed without a trace in the file's identity.
func (r *reader) survey(now time.Time, recheck bool) {
	said := r.said
	r.said = map[string]bool{}
	r.complain(said, r.watch.open())
	r.watch.begin()
	found, err := r.find(func(err error) { r.complain(said, err) })
	r.watch.end()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.missing(now)
	case err != nil:
		r.unreadable(err, now)
	default:
		r.present(found, now, recheck)
	}
	r.surveyed = true
}

// complain notes an error that was not there at the survey before.
func (r *reader) complain(said map[string]bool, err error) {
	if err == nil {
		return
	}
	if text := err.Error(); !r.said[text] {
		r.said[text] = true
		if !said[text] {
			r.notes = append(r.notes, text)
		}
	}
}

// find lists the manifests by path, and watches every folder on the way to them before it looks there.
func (r *reader) find(failed func(error)) (map[string]sight, error) {
	r.dir = ""
	follow := func(dir, name string) { failed(r.watch.follow(dir, name)) }
	s := r.target(r.path, follow, failed)
	if s.err != nil {
		return nil, s.err
	}
	if !s.info.IsDir() {
		return map[string]sight{r.path: s}, nil
	}
	failed(r.watch.folder(s.real))
	names, err := namesIn(s.real)
	if err != nil {
		return nil, err
	}
	r.dir = s.real
	found := make(map[string]sight, len(names))
	for _, name := range names {
		if ignored(name) {
			continue
		}
		path := filepath.Join(r.path, name)
		found[path] = r.sight(path, follow, failed)
	}
	return found, nil
}

// sight looks for the manifest of this path in the manifest folder. A link is followed only with a function for it.
func (r *reader) sight(path string, follow func(dir, name string), failed func(error)) sight {
	s := sight{real: filepath.Join(r.dir, filepath.Base(path))}
	s.info, s.err = os.Lstat(s.real)
	if s.err != nil || s.info.Mode()&fs.ModeSymlink == 0 {
		return s
	}
	if follow != nil {
		s = r.target(s.real, follow, failed)
	}
	s.link = true
	return s
}

// target is what a path with links in it leads to. With failed, a file is also watched where it really is.
func (r *reader) target(path string, follow func(dir, name string), failed func(error)) sight {
	s := sight{}
	s.real, s.info, s.err = trace(path, follow)
	if s.err == nil && !s.info.IsDir() && failed != nil {
		failed(r.watch.content(filepath.Dir(s.real), filepath.Base(s.real)))
		s.info, s.err = os.Lstat(s.real) // what was written before it was watched
	}
	return s
}

func namesIn(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

// missing is the place of manifests being empty: nothing is wanted, unless it was there a moment ago.
func (r *reader) missing(now time.Time) {
	if r.holdsPods() && r.place.doubted(true, now) {
		return
	}
	r.dirty = r.dirty || r.holdsPods()
	clear(r.files)
	r.heard = true
	r.place = place{problem: &messages.ManifestProblem{
		Path: r.path, Message: "there is no such file or folder; it is read as soon as there is",
	}}
}

func (r *reader) holdsPods() bool {
	for _, m := range r.files {
		if len(m.documents) > 0 {
			return true
		}
	}
	return false
}

// unreadable is not knowing what is wanted: all that was wanted last stays so.
func (r *reader) unreadable(err error, now time.Time) {
	if r.surveyed && r.place.problem == nil && r.place.doubted(false, now) {
		return
	}
	r.heard = r.heard || r.loaded
	r.place = place{problem: &messages.ManifestProblem{Path: r.path, Message: "it cannot be read: " + reasonOf(err)}}
}

// present takes in the manifests that were found.
func (r *reader) present(found map[string]sight, now time.Time, recheck bool) {
	first := !r.heard
	r.heard, r.place = true, place{}
	for path, s := range found {
		r.observe(path, s, now, manner{recheck: recheck})
	}
	for path, m := range r.files {
		if _, ok := found[path]; ok {
			continue
		}
		if first { // it went while nobody looked: it is believed at once
			r.dirty = r.dirty || len(m.documents) > 0
			delete(r.files, path)
			continue
		}
		r.observe(path, sight{err: fs.ErrNotExist}, now, manner{})
	}
}

// reasonOf is an error without the path, which the reader of a problem has already.
func reasonOf(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}
