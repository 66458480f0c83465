package nodeapi

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// systemLogs adds /logs/, which serves the system's folder of logs and queries of services' logs (KEP-2258).
func (a *api) systemLogs() {
	if !ptr.Deref(a.conf.Kubelet.EnableSystemLogHandler, true) {
		a.handle("/logs/", disabled("logs endpoint is disabled."))
		return
	}
	query := ptr.Deref(a.conf.Kubelet.EnableSystemLogQuery, false)
	a.handle("/logs/", a.streaming(only(func(w http.ResponseWriter, r *http.Request) error {
		root, err := os.OpenRoot(a.conf.SystemLogs)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }() // read-only
		if query && r.URL.Query().Has("query") {
			return queryLogs(w, r, logFiles{root})
		}
		http.StripPrefix("/logs/", http.FileServerFS(logFiles{root})).ServeHTTP(w, r)
		return nil
	}, http.MethodGet)))
}

// logFiles are the regular files and folders below a folder. It follows no link out of the folder: pods may have write access. It
// opens no other kinds of files for reading, as a pipe would wait for its writer.
type logFiles struct{ root *os.Root }

// maxLinks limits the absolute links in a name: a log shipper's link names the container's log, which may be a link of the
// runtime.
const maxLinks = 4

// Open implements fs.FS.
func (l logFiles) Open(name string) (fs.File, error) {
	f, err := l.open(name)
	for range maxLinks {
		if err == nil {
			break
		}
		// An os.Root rejects every absolute link, even one that stays inside, such as those in /var/log/containers.
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

// The limits of a log query.
const (
	mostServices  = 4
	mostTailLines = 100_000
	longestName   = 256
)

// serviceName matches the name of a systemd unit; it does not begin with a dash, which journalctl would take as an option.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9_][-a-zA-Z0-9_.:@]*$`)

// logQuery selects the logs of services, or one file below the system's folder of logs.
type logQuery struct {
	services []string
	file     string
	filters  []string // journalctl's arguments for the options
}

// parseLogQuery reads ?query=…&sinceTime=…&untilTime=…&tailLines=…&boot=…&pattern=… (KEP-2258). A query with a slash names a
// file, and any other a service. The error names the wrong parameter.
func parseLogQuery(q url.Values) (logQuery, error) {
	var l logQuery
	var wrong []string
	number := func(key string, low, high int, option string) {
		text := q.Get(key)
		if text == "" {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			wrong = append(wrong, fmt.Sprintf("%s: %q is not a number from %d to %d", key, text, low, high))
		}
		l.filters = append(l.filters, option+strconv.Itoa(n))
	}
	moment := func(key, option string) (at time.Time) {
		text := q.Get(key)
		if text == "" {
			return at
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %q is not a time as 2006-01-02T15:04:05Z", key, text))
		}
		l.filters = append(l.filters, option+at.UTC().Format("2006-01-02 15:04:05.000000 UTC"))
		return at
	}
	for _, name := range q["query"] {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case strings.Contains(name, "/"):
			if l.file != "" {
				wrong = append(wrong, "query: at most one file can be asked for")
			}
			l.file = name
		case len(name) > longestName || !serviceName.MatchString(name):
			wrong = append(wrong, fmt.Sprintf("query: %q is not the name of a service", name))
		default:
			l.services = append(l.services, name)
		}
	}
	since, until := moment("sinceTime", "--since="), moment("untilTime", "--until=")
	number("tailLines", 0, mostTailLines, "--lines=")
	number("boot", -1<<31, 0, "--boot=")
	if pattern := q.Get("pattern"); pattern != "" {
		if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
			wrong = append(wrong, "pattern: "+err.Error())
		}
		l.filters = append(l.filters, "--grep="+pattern)
	}
	switch {
	case l.file == "" && len(l.services) == 0:
		wrong = append(wrong, "query: name a service or a file")
	case l.file != "" && len(l.services) > 0:
		wrong = append(wrong, "query: services and a file cannot be asked for together")
	case l.file != "" && len(l.filters) > 0:
		wrong = append(wrong, "query: a file takes no other parameter")
	case len(l.services) > mostServices:
		wrong = append(wrong, fmt.Sprintf("query: at most %d services can be asked for", mostServices))
	case !since.IsZero() && !until.IsZero() && since.After(until):
		wrong = append(wrong, "untilTime: it is before sinceTime")
	}
	if len(wrong) > 0 {
		return l, refuse(http.StatusBadRequest, strings.Join(wrong, "; "))
	}
	return l, nil
}

// queryLogs answers a log query from the journal if it knows the service, else from the service's log file.
func queryLogs(w http.ResponseWriter, r *http.Request, files logFiles) error {
	l, err := parseLogQuery(r.URL.Query())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if l.file != "" {
		return copyLog(w, files, strings.TrimPrefix(path.Clean("/"+l.file), "/"))
	}
	ctx := r.Context()
	known, _ := exec.CommandContext(ctx, "journalctl", "--field=_SYSTEMD_UNIT").Output() // without a journal there are only files
	units := strings.Fields(string(known))
	var journal, plain []string
	for _, s := range l.services {
		if slices.Contains(units, s) || slices.Contains(units, s+".service") {
			journal = append(journal, "--unit="+s)
		} else {
			plain = append(plain, s)
		}
	}
	if len(plain) > 0 && len(l.filters) > 0 {
		return refuse(http.StatusBadRequest, fmt.Sprintf("the journal has no unit %s; its file of logs can only be had "+
			"whole: ask without other parameters", strings.Join(plain, ", ")))
	}
	for _, s := range plain {
		if err := copyServiceFile(w, files, s); err != nil {
			return err
		}
	}
	if len(journal) == 0 {
		return nil
	}
	args := slices.Concat([]string{"--utc", "--no-pager", "--output=short-precise"}, journal, l.filters)
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		_, _ = fmt.Fprintf(w, "\nthe journal was read no further: %v\n", context.Cause(ctx))
	} // otherwise it printed the error itself, or no line matched
	return nil
}

// copyServiceFile copies the usual log file of a service.
func copyServiceFile(w io.Writer, files logFiles, service string) error {
	for _, name := range []string{service, service + ".log", path.Join(service, service+".log")} {
		if info, err := files.root.Stat(name); err == nil && info.Mode().IsRegular() {
			return copyLog(w, files, name)
		}
	}
	return refuse(http.StatusNotFound, fmt.Sprintf("no logs of %s: the journal has no such unit, and %s no file %s.log",
		service, files.root.Name(), service))
}

func copyLog(w io.Writer, files logFiles, name string) error {
	f, err := files.Open(name)
	if err != nil {
		return refuse(http.StatusNotFound, fmt.Sprintf("no file %s in %s", name, files.root.Name()))
	}
	defer func() { _ = f.Close() }() // read-only
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return refuse(http.StatusBadRequest, name+" is a folder: ask for a file in it")
	}
	_, err = io.Copy(w, f)
	return err
}
