package crilog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// openFiles holds the files of one log, oldest first.
type openFiles []*part

func (o openFiles) close() error {
	var errs []error
	for _, p := range o {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Readable returns the reason that a log cannot be opened, or nil.
func Readable(dir Dir, base string) error {
	files, err := openAll(dir, base)
	if err != nil {
		return err
	}
	return files.close()
}

// newest returns the stamp of the newest rotated file.
func (o openFiles) newest() (stamp string) {
	for _, p := range o {
		stamp = max(stamp, p.stamp)
	}
	return stamp
}

// maxTries limits how often the files are opened again because the log was rotated in the meantime.
const maxTries = 10

// errMoved is returned if files keep being renamed while they are opened.
var errMoved = errors.New("the log is being rotated all the time")

// openAll opens all files of a log, as of one moment.
func openAll(dir Dir, base string) (openFiles, error) {
	for range maxTries {
		names, err := dir.Names(".")
		if err != nil {
			return nil, err
		}
		out, err := openThese(dir, base, names)
		if errors.Is(err, fs.ErrNotExist) && (len(Rotated(names, base)) > 0 || slices.Contains(names, base)) {
			continue // it was listed, so it is being rotated
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

// maxOpen limits how many files of a log, the newest, are opened at once so that they remain readable if rotation removes them.
// It is more than the default number of files kept. Other files are opened in their turn.
const maxOpen = 10

func openThese(dir Dir, base string, names []string) (out openFiles, err error) {
	for _, f := range Rotated(names, base) {
		out = append(out, &part{name: f.Name, stamp: f.stamp, packed: f.Compressed})
	}
	log := &part{name: base}
	err = log.hold(dir)
	switch {
	case err == nil:
		out = append(out, log)
	case !errors.Is(err, fs.ErrNotExist) || len(out) == 0: // missing for a moment: the runtime writes to the newest rotated file
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

// tail drops the files that are not needed for the last so many lines. It returns the number of lines to skip in the first
// remaining file. An unreadable file is assumed to have all the missing lines.
func (o *openFiles) tail(ctx context.Context, dir Dir, lines *int64) (skip int64, err error) {
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

// successor opens the file that follows f, which has been read to its end. It returns nil if there is none yet.
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
			f.stamp = ""    // its rotation may have been reverted
			return nil, nil // f is still the log itself
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
			if err := p.Close(); err != nil { // another rotation may have happened in between
				return nil, err
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case next.stamp == "":
			return nil, nil // the runtime has not opened the new file yet, or the pod is gone
		}
	}
	return nil, errMoved
}

// after returns the first rotated file that follows f, or nil. It updates the stamp of f.
func (c *cursor) after(f *part, rotated []File) *File {
	if f.stamp == "" {
		for _, r := range rotated {
			if r.stamp <= c.last {
				continue
			}
			// f was the log itself. The first file rotated since then is f, unless it is a different file; then f is gone.
			if r.Compressed || c.is(f, r.Name) {
				f.stamp = r.stamp
			}
			break
		}
	}
	for _, r := range rotated { // it may have a new name because its first rotation was reverted
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

// is reports whether f has the given name.
func (c *cursor) is(f *part, name string) bool {
	if f.logFile == nil { // it could not be opened
		return false
	}
	info, err := c.dir.Lstat(name)
	return err == nil && os.SameFile(info, f.info)
}
