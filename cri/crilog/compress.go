package crilog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cri/stall"
)

// block is the read size in bytes.
const block = 64 << 10

// ErrNotAFile is wrapped by the error about a log that is a link, a folder, or another non-regular file.
var ErrNotAFile = errors.New("it is not an ordinary file")

// logFile is an open file of a log, with its status when it was opened.
type logFile struct {
	*os.File
	info fs.FileInfo
}

// OpenFile opens a file for reading. It does not follow a link: a pod with write access to the folder could have created it.
func OpenFile(dir Dir, name string) (*logFile, error) {
	f, err := dir.OpenBeneath(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: %w: a link, which is not followed", name, ErrNotAFile)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", name, ErrNotAFile)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &logFile{File: f, info: info}, nil
}

// Compress replaces a file that is no longer written to with a compressed copy. A crash or a full disk leaves the file as it is;
// Leftovers finds an unfinished copy.
func Compress(ctx context.Context, dir Dir, name string) (err error) {
	from, err := OpenFile(dir, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	temporary := name + unfinished
	if err := dir.Unlink(temporary); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	to, err := dir.OpenBeneath(temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, from.info.Mode().Perm())
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(to)
	err = to.Chmod(from.info.Mode().Perm()) // regardless of the umask
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{zip}, &contextReader{ctx, from}, make([]byte, block))
	}
	if err == nil {
		err = errors.Join(zip.Close(), to.Sync())
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = dir.Rename(temporary, name+compressed)
	}
	if err != nil {
		return errors.Join(err, dir.Unlink(temporary))
	}
	return dir.Unlink(name)
}

// contextReader reads until its context ends. Each read counts as progress of the operation.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (p *contextReader) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	stall.Progress(p.ctx, nil)
	return p.r.Read(b)
}
