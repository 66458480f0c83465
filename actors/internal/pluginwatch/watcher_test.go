package pluginwatch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/devices/devicestest"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registry is a handler that records registrations, and refuses the first.
type registry struct {
	mu      sync.Mutex
	refuses int
	there   map[string]string
}

func (r *registry) Register(_ context.Context, _, name, endpoint string, _ []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses--; r.refuses >= 0 {
		return errors.New("not now")
	}
	r.there[name] = endpoint
	return nil
}

func (r *registry) Deregister(_, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.there, name)
}

func (r *registry) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.there[name] != ""
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come true")
		}
	}
}

func retry(int) time.Duration { return 500 * time.Millisecond }

// Sockets appear, are refused and retried, disappear, and come back. A file is not a plugin, and neither is a socket without
// listener.
func TestPluginsComeAndGo(t *testing.T) {
	root := t.TempDir()
	b := &registry{refuses: 1, there: map[string]string{}}
	w := Watcher{Dir: filepath.Join(root, "plugins_registry"), Log: slog.New(slog.DiscardHandler), Retry: retry,
		Handlers: map[string]Handler{api.DevicePlugin: b}}
	defer w.Start()()
	d := devicestest.New(w.Dir, "example.com/disk", "a")
	for range 2 {
		if err := d.StartRegistry(w.Dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.Dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return b.has("example.com/disk") && d.Registered().GetPluginRegistered() })
		d.Stop()
		eventually(t, func() bool { return !b.has("example.com/disk") })
	}
}

// A plugin of an unsupported kind is notified of that.
func TestAPluginOfAnotherKindIsRefused(t *testing.T) {
	root := t.TempDir()
	w := Watcher{Dir: filepath.Join(root, "plugins_registry"), Log: slog.New(slog.DiscardHandler), Retry: retry}
	defer w.Start()()
	d := devicestest.New(w.Dir, "example.com/disk", "a")
	if err := d.StartRegistry(w.Dir); err != nil {
		t.Fatal(err)
	}
	defer d.Stop()
	eventually(t, func() bool {
		return d.Registered().GetError() == `plugins of the kind "DevicePlugin" are not supported`
	})
}

// If one of two sockets of a plugin is gone, the other is asked again.
func TestAnotherSocketOfThePluginIsAskedAgain(t *testing.T) {
	b := &registry{there: map[string]string{}}
	w := Watcher{Log: slog.New(slog.DiscardHandler)}
	gone, stays := &socket{path: "a", name: "disk", handler: b}, &socket{path: "b", name: "disk", handler: b}
	other := &socket{path: "c", name: "other", handler: b, retryAt: time.Now()}
	w.sockets = map[string]*socket{"b": stays, "c": other}
	w.leave(gone)
	if !stays.again || other.again || !other.retryAt.IsZero() {
		t.Errorf("%+v, %+v", stays, other)
	}
}

// A folder that cannot be watched is still scanned.
func TestAFolderThatCannotBeWatchedIsScanned(t *testing.T) {
	events, err := fsnotify.NewWatcher()
	if err == nil {
		err = events.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := Watcher{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), sockets: map[string]*socket{}}
	if due, err := w.scan(t.Context(), events, time.Now()); err != nil || due != scanEvery {
		t.Errorf("%v, %v", due, err)
	}
}

// A socket that is made again and again, and gone soon each time, is asked with back-off. The back-off ends when a socket lasts.
func TestFlappingSocket_HasBackOff(t *testing.T) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close() //nolint:errcheck // it only closes descriptors
	w := Watcher{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Retry: retry, sockets: map[string]*socket{},
		past: map[string]pathHistory{}, done: make(chan func())}
	path, now, asked := filepath.Join(w.Dir, "s"), time.Now(), 0
	live := func(lasts time.Duration) {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close() // connections are refused at once
		if _, err := w.scan(t.Context(), events, now); err != nil {
			t.Fatal(err)
		}
		if w.sockets[path].busy {
			asked++
			(<-w.done)()
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		now = now.Add(lasts)
		if _, err := w.scan(t.Context(), events, now); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		live(time.Millisecond)
	}
	if asked != freeEnds+1 {
		t.Errorf("%d of 100 sockets within a tenth of a second were asked, want %d", asked, freeEnds+1)
	}
	now = now.Add(retry(1))
	live(lasting)
	live(time.Millisecond)
	live(time.Millisecond)
	if asked != freeEnds+4 {
		t.Errorf("%d sockets were asked, want %d: one after the delay, and two after one has lasted", asked, freeEnds+4)
	}
	now = now.Add(3 * lasting)
	if _, err := w.scan(t.Context(), events, now); err != nil || len(w.past) > 0 {
		t.Errorf("%v; the history is kept: %v", err, w.past)
	}
}

// Without an instance of inotify, plugins register all the same.
func TestPluginsRegisterWithoutInotify(t *testing.T) {
	b := &registry{there: map[string]string{}}
	w := Watcher{Dir: filepath.Join(t.TempDir(), "plugins_registry"), Log: slog.New(slog.DiscardHandler), Retry: retry,
		Handlers: map[string]Handler{api.DevicePlugin: b},
		open:     func() (*fsnotify.Watcher, error) { return nil, unix.EMFILE }}
	if err := os.Mkdir(w.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := devicestest.New(w.Dir, "example.com/disk", "a")
	if err := d.StartRegistry(w.Dir); err != nil {
		t.Fatal(err)
	}
	defer d.Stop()
	defer w.Start()()
	eventually(t, func() bool { return b.has("example.com/disk") && d.Registered().GetPluginRegistered() })
}
