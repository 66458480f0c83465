package nodeapi

import (
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// systemLogs adds /logs/, which shows the system's folder of logs, and answers the query of services' logs (KEP-2258).
func (a *api) systemLogs() {
	if !ptr.Deref(a.conf.Kubelet.EnableSystemLogHandler, true) {
		a.handle("/logs/", disabled("logs endpoint is disabled."))
		return
	}
	query := ptr.Deref(a.conf.Kubelet.EnableSystemLogQuery, false)
	a.handle("/logs/", a.slowly(only(func(w http.ResponseWriter, r *http.Request) error {
		root, err := os.OpenRoot(a.conf.SystemLogs)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }() // only read from
		if query && r.URL.Query().Has("query") {
			return queryLogs(w, r, logFiles{root})
		}
		http.StripPrefix("/logs/", http.FileServerFS(logFiles{root})).ServeHTTP(w, r)
		return nil
	}, http.MethodGet)))
}

// logFiles are the ordinary files and folders below a folder. A link that leads out of it is not followed: pods may be able to
// write there. Nothing else is opened for good, as a pipe would wait for its writer.
type logFiles struct{ root *os.Root }

// maxLinks is how many absolute links one name may lead through: a log shipper's link names the container's log, which may be a
// link of the runtime's.
const maxLinks = 4

// Open implements fs.FS.
func (l logFiles) Open(name string) (fs.File, error) {
	f, err := l.open(name)
	for range maxLinks {
		if err == nil {
			break
		}
		// An os.Root refuses every absolute link, also one that stays inside, as those of /var/log/containers.
		target, link := l.root.Readlink(name)
		inside, below := strings.CutPrefix(path.Clean(target), strings.TrimSuffix(l.root.Name(), "/")+"/")
		if link != nil || !below {
			break
		}
		name = inside
		f, err = l.open(name)
	}
	return f, err
}

func (l logFiles) open(name string) (fs.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, err
	}
	return f, nil
}
