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
	*readable           // nil: it is not open
	name      string    // that it had when the folder was looked at
	stamp     string    // of a rotated one; empty for the log itself
	packed    bool      // it is compressed
	content   io.Reader // as it was written, before it was compressed; nil: nothing is read of it yet
}

func openPart(dir Dir, f File) (*part, error) {
	p := &part{name: f.Name, stamp: f.stamp, packed: f.Compressed}
	if err := p.open(dir); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// changed is when the file was last written to or renamed.
func (p *part) changed() time.Time {
	if s, ok := p.info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return p.info.ModTime()
}

// Close closes what is open of it.
func (p *part) Close() error {
	if p.readable == nil {
		return nil
	}
	err := p.readable.Close()
	p.readable, p.content = nil, nil
	return err
}

// hold opens the file, so that it can be read under whatever name it has then.
func (p *part) hold(dir Dir) (err error) {
	if p.readable != nil {
		return nil
	}
	p.readable, err = OpenFile(dir, p.name)
	if errors.Is(err, fs.ErrNotExist) && p.stamp != "" && !p.packed { // it may have been compressed meanwhile
		if p.readable, err = OpenFile(dir, p.name+compressed); err == nil {
			p.name, p.packed = p.name+compressed, true
		}
	}
	return err
}

// open opens the file, and begins with its content.
func (p *part) open(dir Dir) error {
	if p.content != nil {
		return nil
	}
	if err := p.hold(dir); err != nil {
		return err
	}
	if !p.packed {
		p.content = p.readable
		return nil
	}
	zip, err := gzip.NewReader(p.readable)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.content = zip
	return nil
}

// unreadable says of an error that it is that of one rotated file, and not of all: it is gone, or damaged. That it
// is no file is not such: somebody put it there.
func unreadable(err error) bool {
	for _, known := range []error{fs.ErrNotExist, gzip.ErrHeader, gzip.ErrChecksum, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	return corrupt
}

// lines counts the lines of a file, and leaves it as it was.
func (p *part) lines(ctx context.Context, dir Dir) (n int64, err error) {
	held := p.readable != nil
	err = p.open(dir)
	if err == nil {
		n, err = p.count(ctx)
	}
	if p.stamp != "" && unreadable(err) {
		err = nil // it is spoken of when its turn comes
	}
	if !held {
		return n, errors.Join(err, p.Close())
	}
	_, seekErr := p.Seek(0, io.SeekStart)
	p.content = nil
	return n, errors.Join(err, seekErr)
}

// count counts the lines to the end of the file, which is where it ended when it was opened. Where it cannot be read to its
// end, those before are counted.
func (p *part) count(ctx context.Context) (n int64, err error) {
	from := p.content
	if !p.packed {
		from = io.LimitReader(from, p.info.Size())
	}
	from = &contextReader{ctx, from}
	space := make([]byte, block)
	open := false // a last line without an end counts
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

// open opens the file whose turn has come. One that cannot be read is passed over.
func (c *cursor) open(f *part) error {
	err := f.open(c.dir)
	if err == nil || f.stamp == "" || !unreadable(err) {
		return err
	}
	c.passOver(f, err)
	return nil
}

// passOver leaves what cannot be read of a rotated file.
func (c *cursor) passOver(f *part, why error) {
	f.content = strings.NewReader("")
	c.print.used = 0 // a line that is cut there is not one
	if c.tell != nil {
		c.tell(f.name, why)
	}
}
