// Package pluginwatch watches a folder for sockets by which plugins of the node register themselves, as the kubelet does
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1). Each kind of plugin is one entry in the map of handlers. The package has no
// actors, and a Watcher lives as long as the process.
//
// The folder is scanned after each inotify event, and every few seconds. A socket is asked for its identity, registered by the
// handler of its kind, and notified of the result. A socket that is gone is deregistered, a replaced socket is registered
// again, and a failed registration is retried with back-off, as is a socket that is gone soon after its registration again and
// again. A plugin that does not answer does not delay other plugins.
package pluginwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/playlet-dev/playlet/actors/internal/plugin"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Handler registers plugins of one kind. Register may take some seconds, and returns when ctx ends. Both methods may be called
// concurrently for different sockets; for one socket they are called one after the other. Deregister does nothing if another
// socket has registered the name since.
type Handler interface {
	Register(ctx context.Context, socket, name, endpoint string, versions []string) error
	Deregister(socket, name string)
}

// Watcher watches a folder for plugins. Its fields are set before Run and do not change.
type Watcher struct {
	Dir string
	// Handlers has the handlers by kind of plugin, e.g. api.CSIPlugin.
	Handlers map[string]Handler
	Log      *slog.Logger
	// Retry returns the delay after this many failed registrations.
	Retry func(fails int) time.Duration

	sockets map[string]*socket     // by path; used by Run alone
	past    map[string]pathHistory // of the sockets that are gone, by path; used by Run alone
	errors  rate.Sometimes         // logs errors of inotify
	done    chan func()            // results of registrations, applied by Run
	asking  sync.WaitGroup
	open    func() (*fsnotify.Watcher, error) // nil means fsnotify's own
}

const (
	// scanEvery and scanRest are the longest and the shortest time between two scans.
	scanEvery   = 5 * time.Second
	scanRest    = 100 * time.Millisecond
	askTimeout  = 5 * time.Second
	takeTimeout = 30 * time.Second
)

const (
	// lasting is the time after which a registration is no longer a short one. A path may have freeEnds registrations that ended
	// before; then each next one waits longer.
	lasting  = time.Minute
	freeEnds = 5
	// maxAsked limits the sockets that are asked at a time.
	maxAsked = 64
	maxName  = 512
)

// pathHistory is the history of a path: a plugin that fails right after its registration makes its socket again and again.
type pathHistory struct {
	ends    int       // of short registrations
	retryAt time.Time // when the next socket may register
}

// identity distinguishes a socket from its replacement.
type identity struct {
	inode uint64
	made  unix.Timespec // when it was last modified: a chmod does not replace a socket
}

// socket is one socket with its plugin.
type socket struct {
	path    string
	id      identity
	busy    bool
	again   bool      // register again although registered: another socket of this name is gone
	asked   time.Time // first; zero: not yet
	fails   int
	retryAt time.Time
	handler Handler // nil: not registered
	name    string
}

// Start watches until stop is called, which returns when no handler is in a call any more.
func (w *Watcher) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Run watches until ctx ends. It logs a panic and continues.
func (w *Watcher) Run(ctx context.Context) {
	defer w.asking.Wait()
	for ctx.Err() == nil {
		if err := guard.Call(w.Log, "the watch of plugins", func() error { return w.watch(ctx) }); err != nil {
			w.Log.Warn("plugins cannot be watched for", "folder", w.Dir, "error", err)
		}
		select {
		case <-time.After(scanEvery):
		case <-ctx.Done():
		}
	}
}

func (w *Watcher) watch(ctx context.Context) error {
	if err := os.MkdirAll(w.Dir, 0o755); err != nil { // plugins of other users make their sockets in it
		return err
	}
	open := w.open
	if open == nil {
		open = fsnotify.NewWatcher
	}
	var events *fsnotify.Watcher // nil while inotify has no instances left (kubernetes/kubernetes#58081)
	defer func() {
		if events != nil {
			_ = events.Close() // it only closes descriptors
		}
	}()
	if w.sockets == nil {
		w.sockets, w.past, w.done = map[string]*socket{}, map[string]pathHistory{}, make(chan func())
		w.errors.Interval = time.Minute
	}
	for ctx.Err() == nil {
		if events == nil {
			var err error
			if events, err = open(); err != nil {
				events = nil
				w.inotifyFailed(err)
			}
		}
		due, err := w.scan(ctx, events, time.Now())
		if err != nil {
			return err
		}
		w.wait(ctx, events, max(due, scanRest))
	}
	return nil
}

// wait returns after this time, or earlier when something has happened, but not before scanRest.
func (w *Watcher) wait(ctx context.Context, events *fsnotify.Watcher, due time.Duration) {
	rested, over := time.After(scanRest), time.After(due)
	var changes chan fsnotify.Event
	var failures chan error
	if events != nil {
		changes, failures = events.Events, events.Errors
	}
	for news := false; !news || rested != nil; {
		select {
		case <-changes:
			news = true
		case err := <-failures:
			w.inotifyFailed(err)
		case take := <-w.done:
			take()
			news = true
		case <-rested:
			rested = nil
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watcher) inotifyFailed(err error) {
	w.errors.Do(func() {
		w.Log.Warn("inotify failed; plugins are looked for again later", "folder", w.Dir, "error", err)
	})
}

// scan handles new and removed sockets, and returns the longest time until the next scan.
func (w *Watcher) scan(ctx context.Context, events *fsnotify.Watcher, now time.Time) (due time.Duration, err error) {
	found := map[string]identity{}
	err = filepath.WalkDir(w.Dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path == w.Dir:
			return err
		case err != nil: // it was removed meanwhile
		case e.IsDir():
			if events != nil {
				_ = events.Add(path) // adding twice is harmless; if it fails, later scans find the sockets
			}
		case e.Type() == fs.ModeSocket && !strings.HasPrefix(e.Name(), "."):
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil {
				found[path] = identity{st.Ino, st.Mtim}
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for path, s := range w.sockets {
		if id, there := found[path]; !s.busy && (!there || id != s.id) {
			delete(w.sockets, path)
			w.leave(s)
			w.remember(s, now)
		}
	}
	maps.DeleteFunc(w.past, func(_ string, p pathHistory) bool { return now.Sub(p.retryAt) > lasting })
	due = scanEvery
	busy := 0
	for _, s := range w.sockets {
		if s.busy {
			busy++
		}
	}
	for path, id := range found {
		s := w.sockets[path]
		if s == nil {
			s = &socket{path: path, id: id, retryAt: w.past[path].retryAt}
			w.sockets[path] = s
		}
		switch {
		case s.busy || s.handler != nil && !s.again:
		case now.Before(s.retryAt):
			due = min(due, s.retryAt.Sub(now))
		case busy >= maxAsked: // the next result wakes the watcher
		default:
			busy++
			if s.busy = true; s.asked.IsZero() {
				s.asked = now
			}
			w.asking.Go(func() { w.register(ctx, s) })
		}
	}
	return due, nil
}

// remember records the end of a socket in the history of its path. A socket that was not asked leaves it as it is.
func (w *Watcher) remember(s *socket, now time.Time) {
	switch p := w.past[s.path]; {
	case s.asked.IsZero():
	case now.Sub(s.asked) >= lasting:
		delete(w.past, s.path)
	default:
		p.ends++
		if p.retryAt = now; p.ends > freeEnds {
			p.retryAt = now.Add(w.Retry(p.ends - freeEnds))
		}
		w.past[s.path] = p
	}
}

func (w *Watcher) leave(s *socket) {
	if s.handler != nil {
		w.Log.Info("plugin deregistered", "plugin", s.name, "socket", s.path)
		s.handler.Deregister(s.path, s.name)
		for _, o := range w.sockets { // sockets that competed with this one for the name register again
			o.retryAt, o.again = time.Time{}, o.again || o.name == s.name
		}
	}
}

func (w *Watcher) register(ctx context.Context, s *socket) {
	var handler Handler
	var name string
	err := guard.Call(w.Log, "the registration of a plugin", func() (err error) {
		handler, name, err = w.ask(ctx, s.path)
		return err
	})
	select {
	case w.done <- func() { w.ended(s, handler, name, err) }:
	case <-ctx.Done():
	}
}

func (w *Watcher) ended(s *socket, handler Handler, name string, err error) {
	s.busy = false
	if err == nil {
		s.fails, s.again, s.handler, s.name = 0, false, handler, name
		w.Log.Info("plugin registered", "plugin", s.name, "socket", s.path)
		return
	}
	s.fails++
	s.retryAt = time.Now().Add(w.Retry(s.fails))
	w.Log.Warn("a plugin cannot be registered", "socket", s.path, "error", plugin.Shorten(err.Error()),
		"retryAt", s.retryAt)
}

// ask asks a socket for its identity, has its handler register it, and notifies it of the result.
func (w *Watcher) ask(ctx context.Context, socket string) (handler Handler, name string, err error) {
	conn, err := plugin.Dial(socket)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close() //nolint:errcheck // no call is in progress on it
	client := api.NewRegistrationClient(conn)
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := client.GetInfo(asking, &api.InfoRequest{})
	if err != nil {
		return nil, "", fmt.Errorf("asking the plugin for its identity: %w", err)
	}
	name = info.GetName()
	endpoint := info.GetEndpoint()
	if endpoint == "" {
		endpoint = socket
	}
	handler = w.Handlers[info.GetType()]
	if handler == nil {
		err = fmt.Errorf("plugins of the kind %q are not supported", plugin.Shorten(info.GetType()))
	} else if len(name) > maxName {
		err = fmt.Errorf("the plugin's name is longer than %d bytes", maxName)
	} else {
		taking, cancel := context.WithTimeout(ctx, takeTimeout)
		defer cancel()
		err = handler.Register(taking, socket, name, endpoint, info.GetSupportedVersions())
	}
	status := &api.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = plugin.Shorten(err.Error())
	}
	telling, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err2 := client.NotifyRegistrationStatus(telling, status); err2 != nil {
		if err == nil {
			handler.Deregister(socket, name)
		}
		return nil, "", errors.Join(err, fmt.Errorf("telling it so: %w", err2))
	}
	return handler, name, err
}
