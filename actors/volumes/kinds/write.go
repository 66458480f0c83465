package kinds

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// The content of a volume has the kubelet's layout, so that either agent continues from the other's:
//
//	<volume>/..2026_01_02_03_04_05.XXXX/  the files, in a folder that is never changed once it is complete
//	<volume>/..data                       a link to it; renaming another link over it changes all files at once
//	<volume>/<name>                       for each file or topmost folder a link to ..data/<name>
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	stampFormat = "..2006_01_02_15_04_05."
)

// file is one file of a volume's content.
type file struct {
	data  []byte
	mode  int32
	owner *int64 // nil: the agent's
}

// writeFiles makes the volume hold exactly these files, whose paths have been checked. It may be cut off at any point and
// repeated, and changes nothing if the files are there. It removes files that it could not finish.
func writeFiles(p Folder, volume string, files map[string]file) error {
	root, err := p.Sub(volume)
	if err != nil {
		return err
	}
	w := contentWrite{root: Folder{Root: root, Pod: p.Pod}, files: files}
	return errors.Join(w.write(), root.Close())
}

// checkPaths returns an error if files cannot have these paths in one volume.
func checkPaths(paths []string) error {
	given := map[string]string{} // by cleaned path
	for _, path := range paths {
		if err := checkContentPath(path); err != nil {
			return err
		}
		clean := filepath.Clean(path)
		if other, ok := given[clean]; ok && other != path {
			return fmt.Errorf("%q and %q are the same file of the volume", other, path)
		}
		given[clean] = path
	}
	for _, path := range paths {
		for dir := filepath.Dir(filepath.Clean(path)); dir != "."; dir = filepath.Dir(dir) {
			if other, ok := given[dir]; ok {
				return fmt.Errorf("%q is a file of the volume, and %q needs a folder of that name", other, path)
			}
		}
	}
	return nil
}

func checkContentPath(path string) error {
	if len(path) >= unix.PathMax {
		return fmt.Errorf("a path of %d bytes cannot be a file of a volume", len(path))
	}
	if err := safepath.CheckName(path); err != nil {
		return err
	}
	if strings.HasPrefix(path, "..") || filepath.Clean(path) == "." {
		return fmt.Errorf("%q cannot be a file of a volume: names that begin with \"..\" are the agent's", path)
	}
	return nil
}

type contentWrite struct {
	root  Folder // of the volume
	files map[string]file
}

func (w contentWrite) write() error {
	current, err := w.root.Readlink(dataLink)
	if err != nil && !IsAbsent(err) {
		return err
	}
	if current == "" || !w.holds(current) {
		// First the remains of an earlier write are removed: the volume may have no room for both.
		if err := w.sweep(current); err != nil {
			return err
		}
		if current, err = w.replace(); err != nil {
			return err
		}
	}
	if err := w.link(); err != nil {
		return err
	}
	if err := w.unlinkOld(); err != nil {
		return err
	}
	return w.sweep(current)
}

// modeOf returns the mode of a file. If the pod has an fsGroup, the group may read the file.
func (w contentWrite) modeOf(f file) fs.FileMode {
	mode := fs.FileMode(f.mode & 0o777)
	if FSGroupOf(w.root.Pod) != nil {
		mode |= groupRead
	}
	return mode
}

// holds reports whether a folder has exactly these files.
func (w contentWrite) holds(folder string) bool {
	if safepath.CheckElement(folder) != nil {
		return false
	}
	count := 0
	if !w.count(folder, &count) || count != len(w.files) {
		return false
	}
	for path, f := range w.files {
		got, err := w.root.OpenBeneath(filepath.Join(folder, path), unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		info, statErr := got.Stat()
		data, readErr := io.ReadAll(io.LimitReader(got, int64(len(f.data))+1))
		if errors.Join(statErr, readErr, got.Close()) != nil || !info.Mode().IsRegular() ||
			info.Mode().Perm() != w.modeOf(f) || !bytes.Equal(data, f.data) || !w.owned(info, f) {
			return false
		}
	}
	return true
}

func (w contentWrite) owned(info fs.FileInfo, f file) bool {
	group := FSGroupOf(w.root.Pod)
	stat, ok := info.Sys().(*syscall.Stat_t)
	return (group == nil || ok && int64(stat.Gid) == *group) && (f.owner == nil || ok && int64(stat.Uid) == *f.owner)
}

// count adds the number of files in a folder to n. It returns false if the folder cannot be read.
func (w contentWrite) count(folder string, n *int) bool {
	names, err := w.root.Names(folder)
	for _, name := range names {
		at := filepath.Join(folder, name)
		info, statErr := w.root.Lstat(at)
		switch {
		case statErr != nil:
			return false
		case !info.IsDir():
			*n++
		case !w.count(at, n):
			return false
		}
	}
	return err == nil
}

// replace writes the files into a new folder and makes it the current one.
func (w contentWrite) replace() (current string, err error) {
	folder := time.Now().UTC().Format(stampFormat) + rand.Text()[:10]
	defer func() {
		if err != nil {
			err = errors.Join(err, safepath.RemoveAllOneFilesystem(context.Background(), w.root.Root, folder))
		}
	}()
	if err := w.makeFolder(folder); err != nil {
		return "", err
	}
	for _, path := range slices.Sorted(maps.Keys(w.files)) {
		if err := w.writeFile(folder, filepath.Clean(path), w.files[path]); err != nil {
			return "", err
		}
	}
	if err := w.root.Unlink(newDataLink); err != nil && !IsAbsent(err) {
		return "", err
	}
	if err := w.root.Symlink(folder, newDataLink); err != nil {
		return "", err
	}
	return folder, w.root.Rename(newDataLink, dataLink)
}

func (w contentWrite) makeFolder(folder string) error {
	if err := w.root.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return ownFolder(w.root, folder, 0o755, groupReadFolder)
}

func (w contentWrite) writeFile(folder, path string, f file) error {
	for i, c := range path {
		if c == '/' {
			if err := w.makeFolder(filepath.Join(folder, path[:i])); err != nil {
				return err
			}
		}
	}
	out, err := w.root.OpenBeneath(filepath.Join(folder, path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := out.Write(f.data); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Chown(int(ptr.Deref(f.owner, -1)), int(ptr.Deref(FSGroupOf(w.root.Pod), -1))); err != nil {
		return errors.Join(err, out.Close())
	}
	return errors.Join(out.Chmod(w.modeOf(f)), out.Close())
}

// top returns the name of a file in the volume, or of the topmost folder above the file.
func top(path string) string {
	name, _, _ := strings.Cut(filepath.Clean(path), "/")
	return name
}

// link makes the names that containers see. A link has the owner of its file.
func (w contentWrite) link() error {
	for _, path := range slices.Sorted(maps.Keys(w.files)) {
		if err := w.linkTo(top(path), w.files[path].owner); err != nil {
			return err
		}
	}
	return nil
}

func (w contentWrite) linkTo(name string, owner *int64) error {
	want := filepath.Join(dataLink, name)
	info, err := w.root.Lstat(name)
	if err == nil && info.IsDir() {
		// A container mounted the key when it was absent. The folder stays, as with the kubelet: other mounts may lie on it in
		// containers, which rmdir would detach.
		return nil
	}
	if err == nil {
		if got, linkErr := w.root.Readlink(name); linkErr != nil || got != want {
			err = errors.Join(w.root.Unlink(name), w.root.Symlink(want, name))
		}
	} else if IsAbsent(err) {
		err = w.root.Symlink(want, name)
	}
	if err == nil && owner != nil {
		err = w.root.Lchown(name, int(*owner), -1)
	}
	return err
}

// unlinkOld removes the names of files that no longer exist.
func (w contentWrite) unlinkOld() error {
	names, err := w.root.Names(".")
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for path := range w.files {
		wanted[top(path)] = true
	}
	for _, name := range names {
		if link, linkErr := w.root.Readlink(name); linkErr == nil && !wanted[name] && strings.HasPrefix(link, dataLink+"/") {
			err = errors.Join(err, w.root.Unlink(name))
		}
	}
	return err
}

// sweep removes the folders of content that is not current, and the link of an interrupted write. Other names that begin with
// ".." stay: a container may have made them as a subPath.
func (w contentWrite) sweep(current string) error {
	names, err := w.root.Names(".")
	for _, name := range names {
		if _, linkErr := w.root.Readlink(name); name == newDataLink && linkErr == nil {
			err = errors.Join(err, w.root.Unlink(name))
		}
		if isContentFolder(name) && name != current {
			err = errors.Join(err, safepath.RemoveAllOneFilesystem(context.Background(), w.root.Root, name))
		}
	}
	return err
}

// isContentFolder reports whether a name has the form that an agent gives to folders of content.
func isContentFolder(name string) bool {
	if len(name) <= len(stampFormat) {
		return false
	}
	_, err := time.Parse(stampFormat, name[:len(stampFormat)])
	return err == nil
}
