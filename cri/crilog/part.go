package crilog

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"
)

// part is one file of a log.
type part struct {
	*logFile           // nil if it is not open
	name     string    // at the time the folder was listed
	stamp    string    // of a rotated file; empty for the log itself
	packed   bool      // compressed
	content  io.Reader // decompressed; nil if reading has not begun
}

func openPart(dir Dir, f File) (*part, error) {
	p := &part{name: f.Name, stamp: f.stamp, packed: f.Compressed}
	if err := p.open(dir); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// changed returns the time the file was last written to or renamed.
func (p *part) changed() time.Time {
	if s, ok := p.info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return p.info.ModTime()
}

// Close closes the file if it is open.
func (p *part) Close() error {
	if p.logFile == nil {
		return nil
	}
	err := p.logFile.Close()
	p.logFile, p.content = nil, nil
	return err
}

// hold opens the file, so that it remains readable after a rename.
func (p *part) hold(dir Dir) (err error) {
	if p.logFile != nil {
		return nil
	}
	p.logFile, err = OpenFile(dir, p.name)
	if errors.Is(err, fs.ErrNotExist) && p.stamp != "" && !p.packed { // it may have been compressed in the meantime
		if p.logFile, err = OpenFile(dir, p.name+compressed); err == nil {
			p.name, p.packed = p.name+compressed, true
		}
	}
	return err
}

// open opens the file and begins reading its content.
func (p *part) open(dir Dir) error {
	if p.content != nil {
		return nil
	}
	if err := p.hold(dir); err != nil {
		return err
	}
	if !p.packed {
		p.content = p.logFile
		return nil
	}
	zip, err := gzip.NewReader(p.logFile)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.content = zip
	return nil
}

// unreadable reports whether an error concerns a single rotated file, which is gone or damaged. ErrNotAFile does not count: such
// a file was put there on purpose.
func unreadable(err error) bool {
	for _, known := range []error{fs.ErrNotExist, gzip.ErrHeader, gzip.ErrChecksum, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	return corrupt
}

// lines counts the lines of a file and restores its state.
func (p *part) lines(ctx context.Context, dir Dir) (n int64, err error) {
	held := p.logFile != nil
	err = p.open(dir)
	if err == nil {
		n, err = p.count(ctx)
	}
	if p.stamp != "" && unreadable(err) {
		err = nil // reported when its turn comes
	}
	if !held {
		return n, errors.Join(err, p.Close())
	}
	_, seekErr := p.Seek(0, io.SeekStart)
	p.content = nil
	return n, errors.Join(err, seekErr)
}

// count counts the lines up to the size that the file had when it was opened. If it cannot be read to its end, count returns the
// lines before.
func (p *part) count(ctx context.Context) (n int64, err error) {
	from := p.content
	if !p.packed {
		from = io.LimitReader(from, p.info.Size())
	}
	from = &contextReader{ctx, from}
	space := make([]byte, block)
	open := false // a last line without a line end counts
	for {
		got, err := from.Read(space)
		n += int64(bytes.Count(space[:got], []byte{'\n'}))
		if got > 0 {
			open = space[got-1] != '\n'
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if open {
		n++
	}
	return n, nil
}

// open opens the next file to read. It skips an unreadable rotated file.
func (c *cursor) open(f *part) error {
	err := f.open(c.dir)
	if err == nil && !c.follows && !f.packed {
		f.content = io.LimitReader(f.logFile, f.info.Size())
	}
	if err == nil || f.stamp == "" || !unreadable(err) {
		return err
	}
	c.passOver(f, err)
	return nil
}

// passOver skips the unreadable rest of a rotated file.
func (c *cursor) passOver(f *part, why error) {
	f.content = strings.NewReader("")
	c.print.used = 0 // an incomplete line is dropped
	if c.tell != nil {
		c.tell(f.name, why)
	}
}
