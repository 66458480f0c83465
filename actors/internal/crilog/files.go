package crilog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/safepath"
)

// part is one open file of a log.
type part struct {
	*readable
	stamp   string    // of a rotated one; empty for the log itself
	content io.Reader // as it was written, before it was compressed
	packed  bool
}

// opened are open files of one log, oldest first.
type opened []*part

func (o opened) close() error {
	var errs []error
	for _, p := range o {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Readable says why a log cannot be opened.
func Readable(dir *safepath.Root, base string) error {
	files, err := openAll(dir, base)
	if err != nil {
		return err
	}
	return files.close()
}

// newest is the stamp of the newest rotated file.
func (o opened) newest() (stamp string) {
	for _, p := range o {
		stamp = max(stamp, p.stamp)
	}
	return stamp
}

// maxTries is how often the files are opened anew when the log was rotated meanwhile.
const maxTries = 10

// errMoved says that files were renamed while they were opened.
var errMoved = errors.New("the log is being rotated all the time")

// openAll opens all files of a log as they are at one time.
func openAll(dir *safepath.Root, base string) (opened, error) {
	for range maxTries {
		names, err := dir.Names(".")
		if err != nil {
			return nil, err
		}
		out, err := openThese(dir, base, names)
		if errors.Is(err, fs.ErrNotExist) && (len(Rotated(names, base)) > 0 || slices.Contains(names, base)) {
			continue // it was there: it is being rotated
		}
		if err != nil {
			return nil, err
		}
		again, err := dir.Names(".")
		if err != nil {
			return nil, errors.Join(err, out.close())
		}
		if slices.Equal(Rotated(names, base), Rotated(again, base)) {
			return out, nil
		}
		if err := out.close(); err != nil {
			return nil, err
		}
	}
	return nil, errMoved
}

func openThese(dir *safepath.Root, base string, names []string) (out opened, err error) {
	for _, f := range Rotated(names, base) {
		p, err := openPart(dir, f)
		if err != nil {
			return nil, errors.Join(err, out.close())
		}
		out = append(out, p)
	}
	p, err := openPart(dir, File{Name: base})
	switch {
	case err == nil:
		out = append(out, p)
	case !errors.Is(err, fs.ErrNotExist) || len(out) == 0: // missing for a moment: the newest rotated one is written to
		return nil, errors.Join(err, out.close())
	}
	return out, nil
}

func openPart(dir *safepath.Root, f File) (*part, error) {
	r, err := OpenFile(dir, f.Name)
	if err != nil {
		return nil, err
	}
	p := &part{readable: r, stamp: f.stamp, content: r, packed: f.Compressed}
	if f.Compressed {
		if p.content, err = gzip.NewReader(r); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", f.Name, err), r.Close())
		}
	}
	return p, nil
}

// tail drops the files that are not needed for the last so many lines, and gives how many lines of the first of the others are
// not either.
func (o *opened) tail(lines *int64) (skip int64, err error) {
	if lines == nil {
		return 0, nil
	}
	left := max(*lines, 0)
	for i := len(*o) - 1; i >= 0; i-- {
		n, err := (*o)[i].count()
		if err != nil {
			return 0, err
		}
		if n < left && i > 0 {
			left -= n
			continue
		}
		for _, p := range (*o)[:i] {
			err = errors.Join(err, p.Close())
		}
		*o = (*o)[i:]
		return max(n-left, 0), err
	}
	return 0, nil
}

// count counts the lines, and begins anew.
func (p *part) count() (n int64, err error) {
	space := make([]byte, block)
	open := false // a last line without an end counts
	for {
		got, err := p.content.Read(space)
		n += int64(bytes.Count(space[:got], []byte{'\n'}))
		if got > 0 {
			open = space[got-1] != '\n'
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if open {
		n++
	}
	if _, err := p.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if p.packed {
		return n, p.content.(*gzip.Reader).Reset(p.readable)
	}
	return n, nil
}

// successor opens the file that follows f, of which all is read that is there; nil: there is none yet.
func (c *cursor) successor(f *part) (*part, error) {
	for range maxTries {
		names, err := c.dir.Names(".")
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if c.is(f, c.base) {
			return nil, nil // it is still the log itself
		}
		rotated := Rotated(names, c.base)
		next := c.after(f, rotated)
		if next == nil {
			next = &File{Name: c.base}
		}
		p, err := openPart(c.dir, *next)
		switch {
		case err == nil:
			again, err := c.dir.Names(".")
			if err != nil {
				return nil, errors.Join(err, p.Close())
			}
			if slices.Equal(rotated, Rotated(again, c.base)) {
				return p, nil
			}
			if err := p.Close(); err != nil { // one may have come between
				return nil, err
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case next.stamp == "":
			return nil, nil // the runtime has not opened it yet, or the pod has gone
		}
	}
	return nil, errMoved
}

// after picks the first of the rotated files that comes after f; nil: there is none. f gets the stamp that it has by now.
func (c *cursor) after(f *part, rotated []File) *File {
	if f.stamp == "" {
		for _, r := range rotated {
			if r.stamp <= c.last {
				continue
			}
			// It was the log itself. It is the first that came since, unless that is another file: then it is gone.
			if r.Compressed || c.is(f, r.Name) {
				f.stamp = r.stamp
			}
			break
		}
	}
	seen := max(f.stamp, c.last)
	for i := range rotated {
		if rotated[i].stamp > seen {
			return &rotated[i]
		}
	}
	return nil
}

// is says whether f has that name.
func (c *cursor) is(f *part, name string) bool {
	info, err := c.dir.Lstat(name)
	return err == nil && os.SameFile(info, f.info)
}
