package nodeapi

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/pprof"
	"os"
	"path"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/utils/ptr"
)

// configz answers GET /configz: the configuration in force, in its versioned form.
func (a *api) configz(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, map[string]any{"kubeletconfig": a.conf.Kubelet})
}

// systemLogs adds /logs/, which shows the system's folder of logs. The query of services' logs (KEP-2258) is not there yet.
func (a *api) systemLogs() {
	if !ptr.Deref(a.conf.Kubelet.EnableSystemLogHandler, true) {
		a.handle("/logs/", disabled("logs endpoint is disabled."))
		return
	}
	query := ptr.Deref(a.conf.Kubelet.EnableSystemLogQuery, false)
	a.handle("/logs/", a.slowly(only(func(w http.ResponseWriter, r *http.Request) error {
		if query && r.URL.Query().Has("query") {
			return refuse(http.StatusNotFound, "the query of the logs of services is not implemented")
		}
		root, err := os.OpenRoot(a.conf.SystemLogs)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }() // only read from
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

// debug adds profiles and the log's verbosity.
func (a *api) debug() {
	if !ptr.Deref(a.conf.Kubelet.EnableProfilingHandler, true) {
		a.handle("/debug/pprof/", disabled("profiling endpoint is disabled."))
	} else {
		for name, h := range map[string]http.HandlerFunc{
			"": pprof.Index, "profile": pprof.Profile, "symbol": pprof.Symbol, "cmdline": pprof.Cmdline, "trace": pprof.Trace,
		} {
			a.handle("/debug/pprof/"+name, a.slowly(only(func(w http.ResponseWriter, r *http.Request) error {
				h(w, r)
				return nil
			}, http.MethodGet)))
		}
		if a.conf.Kubelet.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	}
	if !ptr.Deref(a.conf.Kubelet.EnableDebugFlagsHandler, true) {
		a.handle("/debug/flags/v", disabled("flags endpoint is disabled."))
		return
	}
	a.handle("/debug/flags/v", within(quickly, only(a.verbosity, http.MethodPut)))
}

// verbosity answers PUT /debug/flags/v, whose body is the number.
func (a *api) verbosity(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return refuse(http.StatusBadRequest, "error reading request body: "+err.Error())
	}
	text := strings.TrimSpace(string(body))
	v, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return refuse(http.StatusBadRequest, fmt.Sprintf("the verbosity %q is not a number from 0 to 255", text))
	}
	a.conf.SetVerbosity(int(v))
	a.log.Info("the log's verbosity was changed", "v", v)
	_, _ = fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", v)
	return nil
}

// zpages adds /flagz and /statusz (KEP-4828, KEP-4827).
func (a *api) zpages() {
	const component = "kubelet"
	pages := http.NewServeMux()
	flagz.Install(pages, component, flagReader(a.conf.Flags))
	a.handle("/flagz", within(quickly, pages))
	version := compatibility.NewEffectiveVersionFromString(a.conf.Kubernetes, "", "")
	statusz.Install(pages, component, statusz.NewRegistry(version, statusz.WithListedPaths(a.paths)))
	a.handle("/statusz", within(quickly, pages))
}

type flagReader map[string]string

// GetFlagz implements flagz.Reader.
func (f flagReader) GetFlagz() map[string]string { return f }
