package facts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// logWindow is how much of a log's end is read. Runtimes cut lines at 16 KiB, so it holds at least maxLogBytes.
const logWindow = 256 << 10

// Read reads the message: the last 4096 bytes of the file or, where that gives nothing and the policy asks for it, the
// last 80 lines of the log, at most 2048 bytes. What keeps it from reading becomes the message, as people look there
// for it. It does not wait: a path that leads to anything but a regular file, which a pod may have put there, is not
// read, and a link as its last element is not followed. The text is valid UTF-8, as the API demands.
func (s MessageSource) Read() string { return strings.ToValidUTF8(s.read(), "?") }

func (s MessageSource) read() string {
	if s.File != "" {
		data, _, err := tailOf(s.File, maxMessageBytes)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("the termination message could not be read: %v", err)
		case len(data) > 0:
			return string(data)
		}
	}
	if s.Log == "" {
		return ""
	}
	data, whole, err := tailOf(s.Log, logWindow)
	if err != nil {
		return fmt.Sprintf("the termination message could not be taken from the log: %v", err)
	}
	return string(logTail(data, whole, maxLogLines, maxLogBytes))
}

// tailOf reads the last bytes of a regular file, at most limit; whole says that they are all of it.
func tailOf(path string, limit int64) (data []byte, whole bool, err error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(info.Size()-limit, 0)
	data, err = io.ReadAll(io.NewSectionReader(f, from, limit))
	return data, from == 0, err
}

// openRegular opens a regular file for reading and nothing else: it is looked at before it is opened, since opening a
// device or a FIFO alone can do harm or wait for ever.
func openRegular(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	found := os.NewFile(uintptr(fd), path)
	defer found.Close() //nolint:errcheck // a descriptor that only names a file has nothing to lose
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return f, nil
}
