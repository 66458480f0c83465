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

// logWindow is the number of bytes read from the end of a log. Runtimes split lines at 16 KiB, so it holds at least maxLogBytes.
const logWindow = 256 << 10

// Read returns the message: the last 4096 bytes of the file or, if it is empty and the policy permits it, the last 80 lines of
// the log, at most 2048 bytes. A failure to read becomes the message, because users look for it there. Read does not block: it
// only reads regular files, and follows no link that a pod may have created anywhere in the path. The text is valid UTF-8, as the
// API requires.
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
	// The parents of the pod's log folder are the node's own, chosen by the agent's configuration.
	data, whole, err := tailOf(filepath.Dir(filepath.Dir(filepath.Dir(s.Log))), s.Log, logWindow)
	if err != nil {
		return fmt.Sprintf("the termination message could not be taken from the log: %v", err)
	}
	return string(logTail(data, whole, maxLogLines, maxLogBytes))
}

// root returns the folder of all pods, if it contains the file. Otherwise the file is on a hostPath volume, where pods may write
// anywhere.
func (s MessageSource) root() string {
	if before, _, ok := strings.Cut(s.File, "/pods/"+s.PodUID+"/"); ok && s.PodUID != "" {
		return before + "/pods"
	}
	return "/"
}

// tailOf reads at most limit bytes from the end of a regular file below a folder; whole reports whether that is the complete
// file.
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

// openRegular opens a regular file below a folder for reading. It checks the type before the open, because merely opening a
// device or a FIFO can do harm or block forever. It follows links up to the folder, but not below, where pods may write.
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

// logTail returns the application's output in the last lines of a CRI log, at most limit bytes. data is the end of the log, or
// all of it when whole is true. Lines that are not in the CRI's format ("<RFC 3339 time> stdout|stderr <tags> <content>", tag P
// for a line that continues in the next) are skipped.
func logTail(data []byte, whole bool, lines, limit int) []byte {
	if !whole {
		_, rest, found := bytes.Cut(data, []byte{'\n'})
		if !found {
			return last(data, limit) // one line is longer than the window: its end is content
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

// lastLines returns the last n lines with their line ends. An unterminated last line is not counted.
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
