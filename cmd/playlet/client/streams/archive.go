package streams

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// lastName is the name of a file of this machine, also of "." and "..".
func lastName(file string) string {
	if whole, err := filepath.Abs(file); err == nil {
		file = whole
	}
	return filepath.Base(file)
}

// pack writes a file or folder as a tar archive in which it has this name. Links stay links.
func pack(to io.Writer, from, name string, note func(string)) error {
	if info, err := os.Stat(from); err != nil {
		return plainFileError(err)
	} else if !info.IsDir() { // a named link is followed
		if from, err = filepath.EvalSymlinks(from); err != nil {
			return plainFileError(err)
		}
	} else {
		from += "/."
	}
	out := tar.NewWriter(to)
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		switch mode := info.Mode(); {
		case mode.IsRegular(), mode.IsDir():
		case mode.Type() == fs.ModeSymlink:
			if target, err = os.Readlink(file); err != nil {
				return err
			}
		default:
			note(file + " is no file, folder or link, and is left out")
			return nil
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		header.Name = path.Join(name, filepath.ToSlash(below))
		if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		return packFile(out, file, header.Size)
	})
	return plainFileError(errors.Join(err, out.Close()))
}

// packFile writes as much of a file as was announced: it may grow meanwhile.
func packFile(out io.Writer, file string, size int64) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read from
	if n, err := io.CopyN(out, in, size); err != nil {
		return fmt.Errorf("%s: %d of %d bytes could be read: %w", file, n, size, err)
	}
	return nil
}

// plainFileError returns a readable error for a failed file operation, without the name of the system call.
func plainFileError(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", failed.Path, failed.Err)
	}
	return err
}

var errNothingSent = errors.New("the container has sent nothing")

// unpacker writes the archive that a container sends. Nothing is written outside the target, whatever the archive contains.
type unpacker struct {
	note  func(string)
	root  *os.Root // the copied folder, or the parent folder of the copied file
	alone bool     // one file is copied: nothing may follow it into the folder in which it is put
	count int
	links []link
}

type link struct{ file, target string }

// maxLinks limits the symbolic links of a copy, which are kept in memory until its end.
const maxLinks = 200_000

// unpack reads an archive of one thing, which has this name there. The target is its new name, or the folder that it is put into.
func (u *unpacker) unpack(from io.Reader, name, target string) error {
	parent, as := filepath.Dir(target), lastName(target)
	if info, err := os.Stat(target); err == nil && info.IsDir() && path.Clean(name) != "." {
		parent, as = target, name
	} else if strings.HasSuffix(target, "/") && err != nil {
		return fmt.Errorf("the folder %s is not there", target)
	}
	root, err := os.OpenRoot(parent)
	if err != nil {
		return plainFileError(err)
	}
	u.root = root
	defer func() { _ = u.root.Close() }() // all of it was written
	archive := tar.NewReader(from)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if u.count == 0 {
				return errNothingSent
			}
			return u.makeLinks()
		}
		if err != nil {
			return fmt.Errorf("the container's output is not a tar archive or is truncated: %w", err)
		}
		below, inside := under(name, h.Name)
		if !inside {
			return fmt.Errorf("the container sends %q, which was not asked for", h.Name)
		}
		if below == "." && u.count == 0 {
			if below, err = u.begin(h, as); err != nil {
				return plainFileError(err)
			}
		} else if below == "." || u.count == 0 || u.alone {
			return fmt.Errorf("the container sends %q, which was not expected there", h.Name)
		}
		u.count++
		if err := u.write(below, name, h, archive); err != nil {
			return plainFileError(err)
		}
	}
}

// under gives the path of an archive's entry below the thing that was asked for.
func under(name, entry string) (below string, ok bool) {
	entry, name = path.Clean(entry), path.Clean(name)
	if name == "." || entry == name {
		below = entry
		if entry == name {
			below = "."
		}
	} else if below, ok = strings.CutPrefix(entry, name+"/"); !ok {
		return "", false
	}
	return below, filepath.IsLocal(below)
}

// begin makes the folder in which everything else is written, where a folder is copied.
func (u *unpacker) begin(h *tar.Header, as string) (string, error) {
	if u.alone = h.Typeflag != tar.TypeDir; u.alone {
		return as, nil
	}
	if err := u.root.Mkdir(as, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	inner, err := u.root.OpenRoot(as)
	if err != nil {
		return "", err
	}
	_ = u.root.Close() // nothing was written by it
	u.root = inner
	return ".", nil
}

func (u *unpacker) write(file, name string, h *tar.Header, from io.Reader) error {
	mode := h.FileInfo().Mode().Perm()
	if h.Typeflag == tar.TypeDir {
		if err := u.root.MkdirAll(file, 0o755); err != nil {
			return err
		}
		return u.root.Chmod(file, mode|0o700)
	}
	if err := u.root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // a link is not written through
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		to, err := u.root.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, to.Close())
	case tar.TypeSymlink:
		if len(u.links) == maxLinks {
			return fmt.Errorf("the container sends more than %d symbolic links", maxLinks)
		}
		u.links = append(u.links, link{file, h.Linkname})
		return nil
	case tar.TypeLink:
		to, inside := under(name, h.Linkname)
		if !inside {
			u.note(fmt.Sprintf("%s is a link to %s, which is not copied, and is left out", h.Name, h.Linkname))
			return nil
		}
		return u.root.Link(to, file)
	}
	u.note(h.Name + " is no file, folder or link, and is left out")
	return nil
}

// makeLinks creates the symbolic links last, so that no file is written through one. A link that leads out of the target, by
// itself or through another link, is removed again.
func (u *unpacker) makeLinks() error {
	for _, l := range u.links {
		if err := u.root.Symlink(l.target, l.file); err != nil {
			return plainFileError(err)
		}
	}
	for _, l := range u.links {
		_, err := u.root.Stat(l.file)
		if (err == nil || errors.Is(err, fs.ErrNotExist)) && filepath.IsLocal(filepath.Join(filepath.Dir(l.file), l.target)) &&
			!filepath.IsAbs(l.target) {
			continue
		}
		if err := u.root.Remove(l.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return plainFileError(err)
		}
		u.note(fmt.Sprintf("%s is a link that leads out of what is copied (%s), and is left out", l.file, l.target))
	}
	return nil
}
