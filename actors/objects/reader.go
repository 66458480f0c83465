package objects

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/messages"
)

// settle is how long a file must have been left alone before a change of it is taken: its writer may not be done.
const settle = 200 * time.Millisecond

// result is the result of a reading. It must not be logged.
type result struct {
	set      *objectset.Set // nil when the folder could not be read
	problems []messages.ManifestProblem
	warnings []string
	again    time.Duration // when it has to be read again; 0: when something changes
}

// String keeps contents out of whatever prints it.
func (r result) String() string { return fmt.Sprintf("objects read, %d problems", len(r.problems)) }

// memory is the state of the last reading, by path. It outlives the actor.
type memory struct {
	dir   string
	mu    sync.Mutex
	files map[string]*entry
	set   *objectset.Set
	doubt doubt
	parse func(path string, data []byte) (manifest.Objects, []manifest.Problem)
	now   func() time.Time // the wall's clock, as of the files' own times
}

func newMemory(dir string) *memory {
	return &memory{dir: dir, files: map[string]*entry{}, parse: manifest.LoadObjects, now: time.Now}
}

// doubt records whether objects of an earlier agent may exist that this one has not read, because their file system is not
// mounted or their file is broken. Volumes that have been written keep the content of such objects.
type doubt struct {
	empty [2]uint64              // device and inode of the folder if it had no objects at the start, else 0
	seen  map[objectset.Ref]bool // the objects read since the start, while there is doubt
}

// apply updates the doubt after a reading, and marks the set with it. first is true of the first reading of the folder.
func (d *doubt) apply(set *objectset.Set, folder [2]uint64, first, unread bool) {
	if first && len(set.ConfigMaps)+len(set.Secrets) == 0 {
		d.empty = folder
	}
	if set.Uncertain = unread || d.empty == folder; !set.Uncertain {
		*d = doubt{}
		return
	}
	if d.seen == nil {
		d.seen = map[objectset.Ref]bool{}
	}
	set.Gone = maps.Clone(d.seen)
	see := func(kind objectset.Kind, k objectset.Key) {
		ref := objectset.Ref{Kind: kind, Namespace: k.Namespace, Name: k.Name}
		d.seen[ref] = true
		delete(set.Gone, ref)
	}
	for k := range set.ConfigMaps {
		see(objectset.ConfigMap, k)
	}
	for k := range set.Secrets {
		see(objectset.Secret, k)
	}
}

// entry is one file.
type entry struct {
	unread   bool // it is broken since the start, so that its objects are unknown
	id       wholefile.Identity
	good     manifest.Objects // each as its document last was without a problem
	problems []messages.ManifestProblem
	pending  bool   // it changed, and is left alone for a moment
	device   uint64 // of the folder in which it was last found

	busy      wholefile.Identity // the version that was last examined, and since when
	busySince time.Time
}

// read reads changed files, and returns the whole set with its problems.
func (m *memory) read(w *dirwatch.Watch) result {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r result
	m.cover(w)
	names, err := os.ReadDir(m.dir)
	var folder fs.FileInfo
	if err == nil {
		folder, err = os.Stat(m.dir)
	}
	if err != nil {
		r.set = m.set
		if errors.Is(err, fs.ErrNotExist) && m.set == nil {
			r.set = &objectset.Set{Uncertain: true} // it may be created later; pods wait for their objects by name
		}
		r.problems = []messages.ManifestProblem{{
			Path: m.dir, Message: "the folder of ConfigMaps and Secrets cannot be read: " + err.Error(), KeptLast: m.set != nil,
		}}
		return r
	}
	open := folder.Mode().Perm()&0o005 != 0
	if open {
		r.warnings = append(r.warnings, m.dir+" is a folder for Secrets and can be read by others; chmod o-rwx")
	}
	id := wholefile.IdentityOf(folder)
	device, began := id.Device, m.set == nil
	there := map[string]bool{}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".") {
			continue
		}
		path := filepath.Join(m.dir, n.Name())
		info, err := os.Stat(path)
		if absent := errors.Is(err, fs.ErrNotExist); absent && n.Type()&fs.ModeSymlink != 0 {
			err = errors.New("it is a link that leads to nothing") // perhaps its file system is not mounted
		} else if absent || err == nil && info.IsDir() {
			continue
		}
		there[path] = true
		e := m.files[path]
		first := e == nil
		if first {
			e = &entry{}
			m.files[path] = e
		}
		m.look(e, path, info, err, first && began)
		e.device = device
		if e.pending {
			r.again = settle
		}
		if info != nil && info.Mode().Perm()&0o004 != 0 && folder.Mode().Perm()&0o001 != 0 && len(e.good.Secrets) > 0 {
			r.warnings = append(r.warnings, path+" holds Secrets and can be read by others; chmod o-rwx")
		}
	}
	maps.DeleteFunc(m.files, func(path string, e *entry) bool {
		if there[path] || e.device == device || !e.holds() {
			return !there[path]
		}
		e.id = wholefile.Identity{}
		e.problems = []messages.ManifestProblem{{Path: path, KeptLast: true, Message: "it is missing, and another file system " +
			"is mounted there than before: mount the earlier one, or make this file and remove it again"}}
		return false
	})
	m.collect(&r)
	unread := slices.ContainsFunc(slices.Collect(maps.Values(m.files)), func(e *entry) bool { return e.unread })
	m.doubt.apply(r.set, [2]uint64{id.Device, id.Inode}, began, unread)
	return r
}

// cover has the folder watched, also for its coming. Where it cannot be, the regular check is the net.
func (m *memory) cover(w *dirwatch.Watch) {
	_ = w.Open()
	places := dirwatch.Places{}
	places.Folder(places.Follow(m.dir))
	_, _ = w.Cover(places)
}

// look reads the file if it has changed and its writer is done. atOnce skips the pause, when there are no earlier objects to
// keep in force.
func (m *memory) look(e *entry, path string, info fs.FileInfo, err error, atOnce bool) {
	e.pending = false
	e.unread = e.unread || atOnce
	broken := func(message string) {
		e.problems = []messages.ManifestProblem{{Path: path, Message: message, KeptLast: e.holds()}}
	}
	if err != nil {
		e.id = wholefile.Identity{}
		broken("it cannot be read: " + err.Error())
		return
	}
	id := wholefile.IdentityOf(info)
	if id == e.id {
		return
	}
	if age := m.now().Sub(info.ModTime()); !atOnce && age >= 0 && age < settle {
		e.pending = true
		return
	}
	data, err := m.data(e, path, id)
	if errors.Is(err, wholefile.ErrBusy) {
		e.pending = true
		return
	}
	if err == nil && manifest.Empty(data) && e.holds() {
		err = errors.New("it is empty; remove it to remove its objects")
	}
	if err != nil {
		e.id = wholefile.Identity{}
		broken("it cannot be read: " + err.Error())
		return
	}
	e.id = id
	objects, found, failed := m.parseSafely(path, data)
	if failed != "" {
		broken(failed)
		return
	}
	e.problems, e.unread = nil, e.unread && len(found) > 0
	for _, p := range found {
		e.problems = append(e.problems, messages.ManifestProblem{
			Path: p.Path, Line: p.Line, Field: p.Field, Message: p.Message, KeptLast: e.holds(),
		})
	}
	if len(found) > 0 { // the object of a document with a problem stays as it was; which one it is may not be readable
		objects = objects.With(e.good)
	}
	e.good = objects
}

func (e *entry) holds() bool {
	return len(e.good.ConfigMaps)+len(e.good.Secrets)+len(e.good.RuntimeClasses) > 0
}

// data reads the file that a path leads to. It does not wait for ever for a writer that holds the file open without writing: it
// reads a file that has not changed for a while since it was first examined. The file's own times do not count, as the clock
// may have been set since.
func (m *memory) data(e *entry, path string, id wholefile.Identity) ([]byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	now := m.now()
	if e.busy != id {
		e.busy, e.busySince = id, now
	}
	return wholefile.Reading{Now: now, Insist: now.Sub(e.busySince) >= wholefile.Quiet}.Read(real)
}

// parseSafely turns a panic of the parser into a problem of the file, so that other files are not affected. The panic's text
// is reported only if it comes from the Go runtime, since it may quote the file.
func (m *memory) parseSafely(path string, data []byte) (objects manifest.Objects, found []manifest.Problem, failed string) {
	defer func() {
		if p := recover(); p != nil {
			failed = "reading it fails by a bug of the agent"
			if err, is := p.(runtime.Error); is {
				failed += ": " + err.Error()
			}
		}
	}()
	objects, found = m.parse(path, data)
	return objects, found, ""
}

// collect makes the set of all that is good. Of two objects of one name the first file's counts.
func (m *memory) collect(r *result) {
	set := &objectset.Set{
		ConfigMaps: map[objectset.Key]*v1.ConfigMap{}, Secrets: map[objectset.Key]*v1.Secret{},
		RuntimeClasses: map[string]string{},
	}
	from := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		e := m.files[path]
		r.problems = append(r.problems, e.problems...)
		taken := func(id string) bool {
			if other, twice := from[id]; twice {
				r.problems = append(r.problems, messages.ManifestProblem{Path: path, Message: id + " is in " + other +
					" already, which counts"})
				return true
			}
			from[id] = path
			return false
		}
		for _, o := range e.good.ConfigMaps {
			if !taken("ConfigMap " + o.Namespace + "/" + o.Name) {
				set.ConfigMaps[objectset.Key{Namespace: o.Namespace, Name: o.Name}] = o
			}
		}
		for _, o := range e.good.Secrets {
			if !taken("Secret " + o.Namespace + "/" + o.Name) {
				set.Secrets[objectset.Key{Namespace: o.Namespace, Name: o.Name}] = o
			}
		}
		for _, o := range e.good.RuntimeClasses {
			if !taken("RuntimeClass " + o.Name) {
				set.RuntimeClasses[o.Name] = o.Handler
			}
		}
	}
	m.set, r.set = set, set
}
