package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// manifestFile is the file found at a manifest's path.
type manifestFile struct {
	real string // its path, without links
	info fs.FileInfo
	err  error
	link bool // it is a link, even a broken one
}

// look examines a path in a folder without links, and adds the targets of links to places.
func look(path string, places dirwatch.Places) (s manifestFile) {
	s.real = path
	if s.info, s.err = os.Lstat(path); s.err != nil || s.info.Mode()&fs.ModeSymlink == 0 {
		return s
	}
	s.link = true
	s.info, s.err = os.Stat(path)
	s.real = places.Follow(path)
	return s
}

// find lists the manifests by path, and the places to watch for changes.
func find(path string) (found map[string]manifestFile, places dirwatch.Places, err error) {
	places = dirwatch.Places{}
	s := look(path, places)
	s.real = places.Follow(path) // also through links above it
	switch {
	case s.err != nil:
		return nil, places, s.err
	case !s.info.IsDir():
		return map[string]manifestFile{path: s}, places, nil
	}
	places.Folder(s.real)
	entries, err := os.ReadDir(s.real)
	found = make(map[string]manifestFile, len(entries))
	for _, e := range entries {
		if !ignored(e.Name()) {
			found[filepath.Join(path, e.Name())] = look(filepath.Join(s.real, e.Name()), places)
		}
	}
	return found, places, err
}

// looksAtMost bounds the repeated looks after a new place is watched, also if the files change all the time.
const looksAtMost = 5

// survey finds everything again: the target of the path, the manifests, and all folders to watch.
func (r *reader) survey(now time.Time, c dirwatch.Changes) {
	said := r.logged
	r.logged = map[string]bool{}
	complain := func(errs ...error) {
		for _, err := range errs {
			if err == nil || r.logged[err.Error()] {
				continue
			}
			if r.logged[err.Error()] = true; !said[err.Error()] {
				r.notes = append(r.notes, err.Error())
			}
		}
	}
	complain(r.watch.Open())
	var found map[string]manifestFile
	var err error
	for range looksAtMost {
		var places dirwatch.Places
		found, places, err = find(r.opts.Path)
		fresh, problems := r.watch.Cover(places)
		complain(problems...)
		if !fresh {
			break
		}
	}
	device := base.DeviceAt(r.opts.Path)
	r.away = nil
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.isAway(device) && !r.isRemoved():
		r.unreadable(errNotMounted, now)
	case errors.Is(err, fs.ErrNotExist) && isLink(r.opts.Path) && r.current:
		r.unreadable(errToNothing, now)
	case errors.Is(err, fs.ErrNotExist):
		r.missing(now)
	case err != nil:
		r.unreadable(err, now)
	default:
		r.present(found, device, now, c)
		r.folder = base.DeviceAt(filepath.Dir(r.opts.Path))
	}
	r.surveyed = true
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// bootID identifies the life of the machine or of the container that stands for one, within which the numbers of devices are
// valid. It is "" if unknown.
func bootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	first, firstErr := os.ReadFile("/proc/1/stat")
	_, after, _ := strings.Cut(string(first), ") ")
	const start = 22 - 3 // proc_pid_stat(5); the third field follows the name
	if fields := strings.Fields(after); err == nil && firstErr == nil && len(fields) > start {
		return strings.TrimSpace(string(boot)) + "/" + fields[start]
	}
	return ""
}

// isAway reports whether any manifest with pods was on another device: its file system is no longer mounted there, or another
// one is mounted over it. The pods of such manifests do not end.
func (r *reader) isAway(device uint64) bool {
	for _, m := range r.files {
		if m.isAway(device) {
			return true
		}
	}
	return false
}

func (m *entry) isAway(device uint64) bool {
	return m.device != 0 && device != 0 && m.device != device && len(m.documents) > 0
}

// isRemoved reports whether the path was removed from its folder: the folder is on the device that it was on before, and has no
// such name. A mount above it would have taken the folder away, too.
func (r *reader) isRemoved() bool {
	_, err := os.Lstat(r.opts.Path)
	return errors.Is(err, fs.ErrNotExist) && r.folder != 0 && r.folder == base.DeviceAt(filepath.Dir(r.opts.Path))
}

// errNotMounted is the problem of a path that was on another device, so that no pod ends.
var errNotMounted = errors.New("it does not exist, and its file system is not mounted: mount it, or make its files there and " +
	"remove them again to end their pods")

// errToNothing is the problem of a link. Its target's file system may not be mounted, so that no pod ends.
var errToNothing = errors.New("it is a link that leads to nothing")

// stillPending records that the path is missing or unreadable, and reports whether that is not accepted yet.
func (r *reader) stillPending(g fileState, wait time.Duration, now time.Time) bool {
	if r.pending == nil || r.pending.state != g {
		r.pending = &pendingState{state: g, wait: wait, since: now, changed: now}
	}
	return now.Before(r.pending.due())
}

// missing handles a missing path: no pods are desired, unless it existed a moment ago. It is a problem without an API server, or
// if there were pods.
func (r *reader) missing(now time.Time) {
	holdsPods := false
	for _, m := range r.files {
		holdsPods = holdsPods || len(m.documents) > 0
	}
	if holdsPods && r.stillPending(fileMissing, waitPlace, now) {
		return
	}
	r.dirty = r.dirty || holdsPods
	clear(r.files)
	r.podsKnown, r.pending, r.missed = true, nil, !isLink(r.opts.Path)
	if r.opts.Node.Cluster && r.missed && !holdsPods && r.problem == nil {
		return // the usual state of a node without static pods: kubeadm join makes no folder
	}
	r.problem = &messages.ManifestProblem{
		Path: r.opts.Path, Message: "there is no such file or folder; it is read as soon as there is",
	}
	if !r.missed {
		r.problem.Message = errToNothing.Error() + "; it is read as soon as it does"
	}
}

// unreadable handles an unreadable path: the desired pods are unknown, and the last ones stay.
func (r *reader) unreadable(err error, now time.Time) {
	if r.surveyed && r.problem == nil && r.stillPending(fileInvalid, waitBroken, now) {
		return
	}
	r.podsKnown, r.pending, r.missed = r.podsKnown || r.loaded, nil, false
	r.problem = &messages.ManifestProblem{Path: r.opts.Path, Message: "it cannot be read: " + reasonOf(err)}
}

// present handles the manifests that were found.
func (r *reader) present(found map[string]manifestFile, device uint64, now time.Time, c dirwatch.Changes) {
	first := !r.podsKnown
	r.podsKnown, r.current, r.problem, r.pending = true, true, nil, nil
	for path, s := range found {
		done, event := c.Written[filepath.Base(path)]
		r.observe(path, s, now, event || c.Lost || c.Check, done)
		if m := r.files[path]; m != nil && m.device != device {
			r.dirty, m.device = r.dirty || len(m.documents) > 0, device
		}
	}
	for path, m := range r.files {
		if _, ok := found[path]; ok {
			continue
		}
		if m.isAway(device) {
			m.pending, r.away = nil, append(r.away, filepath.Base(path))
			continue
		}
		if first { // it was removed before the first look: accepted at once
			r.dirty = r.dirty || len(m.documents) > 0
			delete(r.files, path)
			continue
		}
		r.observe(path, manifestFile{err: fs.ErrNotExist}, now, false, false)
	}
}

// reasonOf returns an error without the path, which the problem already has.
func reasonOf(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// ignored reports whether a file of this name in a manifest folder is not a manifest. Hidden files are ignored as in the
// kubelet, including the "..data" of an atomically swapped ConfigMap. So are the leftovers of editors: copies (x~), autosaves
// of Emacs (#x#), swap files of Vim and its probe for a writable folder (4913).
func ignored(name string) bool {
	switch {
	case name == "", name[0] == '.', name == "4913":
		return true
	case strings.HasSuffix(name, "~"), strings.HasSuffix(name, ".swp"), strings.HasSuffix(name, ".swo"):
		return true
	default:
		return len(name) > 1 && name[0] == '#' && name[len(name)-1] == '#'
	}
}
