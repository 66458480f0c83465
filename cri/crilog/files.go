package crilog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// opened are the files of one log, oldest first.
type opened []*part

func (o opened) close() error {
	var errs []error
	for _, p := range o {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Readable says why a log cannot be opened.
func Readable(dir Dir, base string) error {
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
func openAll(dir Dir, base string) (opened, error) {
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

// maxOpen is how many files of a log, the newest, are opened at once, so that they can be read though they are rotated away
// for good meanwhile: more than are kept of a log by default. Others are opened when their turn comes.
const maxOpen = 10

func openThese(dir Dir, base string, names []string) (out opened, err error) {
	for _, f := range Rotated(names, base) {
		out = append(out, &part{name: f.Name, stamp: f.stamp, packed: f.Compressed})
	}
	log := &part{name: base}
	err = log.hold(dir)
	switch {
	case err == nil:
		out = append(out, log)
	case !errors.Is(err, fs.ErrNotExist) || len(out) == 0: // missing for a moment: the newest rotated one is written to
		return nil, err
	}
	for i, p := range slices.Backward(out) {
		if len(out)-i > maxOpen {
			break
		}
		if err := p.hold(dir); err != nil && (i == len(out)-1 || !unreadable(err)) {
			return nil, errors.Join(err, out.close())
		}
	}
	return out, nil
}

// tail drops the files that are not needed for the last so many lines, and gives how many lines of the first of the others are
// not either. One that cannot be read has as many lines as can be.
func (o *opened) tail(ctx context.Context, dir Dir, lines *int64) (skip int64, err error) {
	if lines == nil {
		return 0, nil
	}
	left := max(*lines, 0)
	for i := len(*o) - 1; i >= 0; i-- {
		n, err := (*o)[i].lines(ctx, dir)
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
			f.stamp = ""    // a rotation of it may have been taken back
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
	for _, r := range rotated { // it may have been named anew: its first rotation was taken back
		if f.stamp != "" && r.stamp > f.stamp && !r.Compressed && c.is(f, r.Name) {
			f.stamp = r.stamp
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
	if f.readable == nil { // it could not be opened
		return false
	}
	info, err := c.dir.Lstat(name)
	return err == nil && os.SameFile(info, f.info)
}
