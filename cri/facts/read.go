package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cri/crilog"
)

// logWindow is how much of a log's end is read. Runtimes cut lines at 16 KiB, so it holds at least maxLogBytes.
const logWindow = 256 << 10

// Read reads the message: the last 4096 bytes of the file or, where that gives nothing and the policy asks for it, the
// last 80 lines of the log, at most 2048 bytes. What keeps it from reading becomes the message, as people look there
// for it. It does not wait: a path that leads to anything but a regular file, which a pod may have put there, is not
// read, and no link is followed that a pod may have put anywhere in it. The text is valid UTF-8, as the API demands.
func (s MessageSource) Read() string { return strings.ToValidUTF8(s.read(), "?") }

func (s MessageSource) read() string {
	if s.File != "" {
		data, _, err := tailOf(s.root(), s.File, maxMessageBytes)
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
	// Above the pod's folder of logs are folders of the node, as the agent has asked for them.
	data, whole, err := tailOf(filepath.Dir(filepath.Dir(filepath.Dir(s.Log))), s.Log, logWindow)
	if err != nil {
		return fmt.Sprintf("the termination message could not be taken from the log: %v", err)
	}
	return string(logTail(data, whole, maxLogLines, maxLogBytes))
}

// root is the folder of all pods, in which the file lies; one that lies elsewhere is of a hostPath, of which all is the pods'.
func (s MessageSource) root() string {
	if before, _, ok := strings.Cut(s.File, "/pods/"+s.PodUID+"/"); ok && s.PodUID != "" {
		return before + "/pods"
	}
	return "/"
}

// tailOf reads the last bytes of a regular file below a folder, at most limit; whole says that they are all of it.
func tailOf(root, path string, limit int64) (data []byte, whole bool, err error) {
	f, err := openRegular(root, path)
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

// openRegular opens a regular file below a folder for reading and nothing else: it is looked at before it is opened, since
// opening a device or a FIFO alone can do harm or wait for ever. Links are followed to the folder and not below it, as pods
// may write there.
func openRegular(root, path string) (*os.File, error) {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only looked at
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("there is a link in %s, and it is not followed", path)
	}
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

// logTail is what an application wrote in the last lines of a CRI log, at most limit bytes of it. data is the end of
// the log, or all of it when whole is true. Lines that are not in the CRI's format ("<RFC 3339 time> stdout|stderr
// <tags> <content>", tag P for a line that goes on in the next) are skipped.
func logTail(data []byte, whole bool, lines, limit int) []byte {
	if !whole {
		_, rest, found := bytes.Cut(data, []byte{'\n'})
		if !found {
			return last(data, limit) // one line longer than all that was read: its end is content
		}
		data = rest
	}
	var out []byte
	for _, line := range lastLines(data, lines) {
		if l, ok := crilog.ParseLine(line); ok {
			out = append(out, l.Text...)
		}
	}
	return last(out, limit)
}

// lastLines is the last n lines with their line ends. A last line that has none is not counted.
func lastLines(data []byte, n int) [][]byte {
	all := bytes.SplitAfter(data, []byte{'\n'})
	if len(all[len(all)-1]) == 0 {
		all = all[:len(all)-1]
	} else {
		n++
	}
	return all[max(len(all)-n, 0):]
}

func last(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }
