package shutdown

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// logind implements the parts of org.freedesktop.login1.Manager, and of systemd1's, that the inhibitor uses, on a bus of its
// own.
type logind struct {
	conn      *dbus.Conn
	conf      string
	takes     bool   // it applies drop-ins
	last      string // the drop-in that counts; empty: the kubelet's
	mu        sync.Mutex
	preparing bool
	fails     int        // answers about the shutdown that fail
	limit     uint64     // µs
	unknown   bool       // answers about the limit fail
	begins    bool       // a shutdown begins when the drop-ins are read
	locks     []*os.File // our ends of pipes; the locks are the other ends
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func startLogind(t *testing.T, limit time.Duration) *logind {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("no dbus-daemon (Debian: dbus-daemon)")
	}
	dir, err := os.MkdirTemp("", "bus") // a short path, as unix sockets have
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := "unix:path=" + filepath.Join(dir, "s")
	must(t, os.WriteFile(filepath.Join(dir, "conf"), []byte(`<busconfig><type>system</type><listen>`+socket+`</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow own="*"/><allow receive_sender="*"/></policy></busconfig>`), 0o600))
	daemon := exec.Command("dbus-daemon", "--config-file="+filepath.Join(dir, "conf"), "--nofork", "--nopidfile")
	must(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", socket)
	l := &logind{conf: filepath.Join(dir, "logind.conf.d"), takes: true, limit: uint64(limit / time.Microsecond)}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if l.conn, err = dbus.Connect(socket); err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = l.conn.Close()
		for _, f := range l.locks {
			_ = f.Close()
		}
	})
	must(t, l.conn.Export(l, loginPath, manager))
	must(t, l.conn.Export(l, loginPath, "org.freedesktop.DBus.Properties"))
	must(t, l.conn.Export(l, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"))
	for _, name := range []string{login1, "org.freedesktop.systemd1"} {
		_, err := l.conn.RequestName(name, dbus.NameFlagDoNotQueue)
		must(t, err)
	}
	return l
}

// Get is org.freedesktop.DBus.Properties.Get.
func (l *logind) Get(_, name string) (dbus.Variant, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch name {
	case "PreparingForShutdown":
		if l.fails > 0 {
			l.fails--
			return dbus.Variant{}, dbus.MakeFailedError(errors.New("busy"))
		}
		return dbus.MakeVariant(l.preparing), nil
	case "InhibitDelayMaxUSec":
		if l.unknown {
			return dbus.Variant{}, dbus.MakeFailedError(errors.New("busy"))
		}
		return dbus.MakeVariant(l.limit), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(errors.New("no property " + name))
}

// Inhibit gives a lock: one end of a pipe.
func (l *logind) Inhibit(what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	ours, lock, err := os.Pipe()
	if err != nil || what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(errors.New("another lock"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks = append(l.locks, ours)
	time.AfterFunc(10*time.Second, func() { _ = lock.Close() })
	return dbus.UnixFD(lock.Fd()), nil
}

// KillUnit has logind read its drop-ins again.
func (l *logind) KillUnit(unit, _ string, signal int32) *dbus.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, err := os.ReadFile(filepath.Join(l.conf, cmp.Or(l.last, "99-kubelet.conf")))
	if errors.Is(err, fs.ErrNotExist) && l.last != "" {
		return nil
	}
	if err != nil || unit != "systemd-logind.service" || signal != 1 {
		return dbus.MakeFailedError(errors.New("not so"))
	}
	if len(l.locks) == 0 { // a shutdown that begins now would not wait
		return dbus.MakeFailedError(errors.New("no lock is held while the limit is raised"))
	}
	if l.begins {
		l.preparing = true
		if err := l.conn.Emit(loginPath, manager+".PrepareForShutdown", true); err != nil {
			return dbus.MakeFailedError(err)
		}
	}
	if l.takes && strings.Contains(string(data), "[Login]\nInhibitDelayMaxSec=30\n") {
		l.limit = 30_000_000
	}
	return nil
}

func (l *logind) prepares(t *testing.T, under bool) {
	t.Helper()
	l.mu.Lock()
	l.preparing = under
	l.mu.Unlock()
	must(t, l.conn.Emit(loginPath, manager+".PrepareForShutdown", under))
}

// refuse has the next n questions about the shutdown fail.
func (l *logind) refuse(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = n
}

func (l *logind) delays() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.limit) * time.Microsecond
}

func (l *logind) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.locks)
}

// prepare connects and takes the lock.
func prepare(ctx context.Context, t *testing.T, in *Logind) {
	t.Helper()
	must(t, in.ask(ctx))
	must(t, in.hold(ctx))
}

var thirty = []Group{{0, 20 * time.Second}, {critical, 10 * time.Second}}

func TestALockOfLogind(t *testing.T) {
	l := startLogind(t, 5*time.Second)
	in := NewLogind(thirty, l.conf)
	t.Cleanup(func() { must(t, in.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	prepare(ctx, t, in)
	prepare(ctx, t, in)
	if got := l.held(); got != 1 {
		t.Fatalf("%d locks were taken", got)
	}
	seen := make(chan bool)
	go func() {
		defer close(seen)
		under, err := in.Await(ctx, false)
		seen <- under && err == nil
		under, err = in.Await(ctx, true)
		seen <- !under && err == nil
	}()
	if l.limit != 30_000_000 {
		t.Errorf("the limit of delays was not raised: %d", l.limit)
	}
	l.prepares(t, true)
	if !<-seen {
		t.Error("the shutdown was not seen")
	}
	must(t, in.Release()) // while the cancellation is awaited
	must(t, in.Release())
	l.prepares(t, false)
	if !<-seen {
		t.Error("the cancellation was not seen")
	}
	<-seen
	l.prepares(t, true)
	if under, err := in.Await(ctx, false); !under || err != nil {
		t.Error(under, err)
	}
	if got := l.held(); got != 2 {
		t.Errorf("%d locks were taken, want another one after the cancellation", got)
	}
}

func TestAShutdownThatBeganBefore(t *testing.T) {
	l := startLogind(t, time.Minute)
	l.mu.Lock()
	l.preparing = true
	l.mu.Unlock()
	in := NewLogind(thirty, l.conf)
	t.Cleanup(func() { must(t, in.Close()) })
	if under, err := in.Await(t.Context(), false); !under || err != nil || l.held() != 0 {
		t.Error(under, err, l.held())
	}
	if _, err := os.Stat(l.conf); err == nil {
		t.Error("a limit that is high enough was raised")
	}
}

func TestWhatLogindLacksIsSaid(t *testing.T) {
	t.Run("a higher limit", func(t *testing.T) {
		l := startLogind(t, 5*time.Second)
		l.mu.Lock()
		l.takes = false
		l.mu.Unlock()
		in := NewLogind(thirty, l.conf)
		t.Cleanup(func() { must(t, in.Close()) })
		_, err := in.Await(t.Context(), false)
		if _, short := errors.AsType[ShortDelay](err); !short || !strings.Contains(err.Error(), "set InhibitDelayMaxSec=30 in a file of "+l.conf) {
			t.Error(err)
		}
		if l.held() != 1 {
			t.Error("a shutdown does not wait at all") // as with a kubelet
		}
		over, end := context.WithCancel(t.Context())
		end()
		if _, err := in.Await(over, false); err == nil {
			t.Error("at the end of a wait the limit counts as high enough")
		}
		l.mu.Lock()
		l.limit = 30_000_000 // the administrator has followed the advice
		l.mu.Unlock()
		if under, err := in.Await(t.Context(), false); under || err != nil {
			t.Error(under, err)
		}
		l.prepares(t, true)
		if under, err := in.Await(t.Context(), false); !under || err != nil {
			t.Error(under, err)
		}
	})
	t.Run("for a moment", func(t *testing.T) {
		l := startLogind(t, 5*time.Second)
		l.mu.Lock()
		l.unknown = true
		l.mu.Unlock()
		in := NewLogind(thirty, l.conf)
		t.Cleanup(func() { must(t, in.Close()) })
		if _, err := in.Await(t.Context(), false); err == nil || !strings.Contains(err.Error(), "InhibitDelayMaxUSec") {
			t.Errorf("got %v, want that the limit is unknown", err)
		}
		l.mu.Lock()
		l.unknown = false
		l.mu.Unlock()
		if under, err := in.Await(t.Context(), false); under || err != nil || l.delays() != 30*time.Second {
			t.Errorf("got %v, %v and a limit of %v, want it raised", under, err, l.delays())
		}
	})
	t.Run("a shutdown while the limit is raised", func(t *testing.T) {
		l := startLogind(t, 5*time.Second)
		l.mu.Lock()
		l.takes, l.begins = false, true
		l.mu.Unlock()
		in := NewLogind(thirty, l.conf)
		t.Cleanup(func() { must(t, in.Close()) })
		prepare(t.Context(), t, in)
		if in.short == nil || !strings.Contains(in.short.Error(), "a shutdown has begun") {
			t.Errorf("got %v, want an interrupted attempt", in.short)
		}
		in.reported = true
		if under, err := in.Await(t.Context(), false); !under || err != nil {
			t.Errorf("got %v, %v, want the shutdown", under, err)
		}
	})
	t.Run("a file that sorts behind the kubelet's", func(t *testing.T) { // kubernetes/kubernetes#102818
		l := startLogind(t, 5*time.Second)
		l.mu.Lock()
		l.last = "zz-playlet.conf"
		l.mu.Unlock()
		in := NewLogind(thirty, l.conf)
		t.Cleanup(func() { must(t, in.Close()) })
		prepare(t.Context(), t, in)
		if in.short != nil || l.held() != 1 { // the limit suffices
			t.Error(in.short, l.held())
		}
		if "zz-playlet.conf" <= "unattended-upgrades-logind-maxdelay.conf" {
			t.Error("it does not sort last")
		}
	})
	t.Run("until later", func(t *testing.T) {
		l := startLogind(t, time.Minute)
		l.refuse(1000)
		in := NewLogind(thirty, l.conf)
		t.Cleanup(func() { must(t, in.Close()) })
		if _, err := in.Await(t.Context(), false); err == nil || l.held() != 0 {
			t.Errorf("got %v and %d locks, want an error", err, l.held())
		}
		l.refuse(0)
		if under, err := in.Await(t.Context(), false); under || err != nil || l.held() != 1 {
			t.Errorf("got %v, %v and %d locks, want the lock to be reported", under, err, l.held())
		}
	})
	t.Run("itself", func(t *testing.T) {
		t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
		if _, err := NewLogind(thirty, "/nowhere").Await(t.Context(), false); err == nil || !strings.Contains(err.Error(), "no system bus") {
			t.Error(err)
		}
	})
}

// Any local user can send a signal of logind's name, to all or to one connection: none begins a shutdown
// that logind does not prepare.
func TestLogind_ForgedSignals(t *testing.T) {
	l := startLogind(t, time.Minute)
	in := NewLogind(thirty, l.conf)
	t.Cleanup(func() { must(t, in.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	prepare(ctx, t, in)
	stranger, err := dbus.Connect(os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"))
	must(t, err)
	t.Cleanup(func() { _ = stranger.Close() })
	// routed waits until the bus has taken all messages of a connection.
	routed := func(conn *dbus.Conn) { must(t, conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err) }
	forge := func(conn *dbus.Conn, destination string) {
		m := &dbus.Message{Type: dbus.TypeSignal, Body: []any{true}, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant("PrepareForShutdown"),
			dbus.FieldPath:      dbus.MakeVariant(loginPath),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true))}}
		if destination != "" {
			m.Headers[dbus.FieldDestination] = dbus.MakeVariant(destination)
		}
		must(t, conn.Send(m, nil).Err)
		routed(conn)
	}
	next := func(from *dbus.Conn, sender string) {
		t.Helper()
		for s := range in.signals {
			if s.Sender == "org.freedesktop.DBus" {
				continue
			}
			if s.Sender != from.Names()[0] {
				t.Fatalf("got a signal of %s, want one of %s", s.Sender, sender)
			}
			in.observe(s, true)
			must(t, in.ask(ctx))
			if in.under {
				t.Fatalf("a signal of %s began a shutdown", sender)
			}
			return
		}
	}
	forge(stranger, "") // the match rule keeps it away
	forge(stranger, in.conn.Names()[0])
	next(stranger, "a stranger")
	forge(l.conn, "")
	next(l.conn, "logind without a shutdown")
	l.prepares(t, true)
	if under, err := in.Await(ctx, false); !under || err != nil {
		t.Error("logind's shutdown was not seen:", under, err)
	}
}

// The lock outlives every failure to learn whether a shutdown is in progress, and the shutdown is noticed in the end.
func TestLogind_UnansweredQuestions(t *testing.T) {
	for name, c := range map[string]struct {
		groups []Group
		fail   func(t *testing.T, l *logind, in *Logind)
	}{
		"logind is busy": {thirty, func(t *testing.T, l *logind, _ *Logind) {
			l.refuse(3)
			l.prepares(t, true)
		}},
		"logind is busy for longer than a shutdown takes": {nil, func(t *testing.T, l *logind, in *Logind) {
			l.refuse(1)
			l.prepares(t, true)
			if under, err := in.Await(t.Context(), false); under || err == nil {
				t.Errorf("got %v, %v, want an error", under, err)
			}
		}},
		"the actor ends": {thirty, func(t *testing.T, l *logind, in *Logind) {
			l.prepares(t, true)
			for in.answered { // the bus sends signals, too
				in.observe(<-in.signals, true)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if under, err := in.Await(ended, false); under || err != nil {
				t.Errorf("got %v, %v, want the former state", under, err)
			}
		}},
		"the connection ends": {thirty, func(t *testing.T, l *logind, in *Logind) {
			must(t, in.conn.Close())
			l.prepares(t, true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLogind(t, time.Minute)
			in := NewLogind(c.groups, l.conf)
			t.Cleanup(func() { must(t, in.Close()) })
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			prepare(ctx, t, in)
			lock := in.lock
			c.fail(t, l, in)
			if under, err := in.Await(ctx, false); !under || err != nil {
				t.Errorf("got %v, %v, want a shutdown", under, err)
			}
			if in.lock != lock || l.held() != 1 {
				t.Error("the lock was released")
			}
		})
	}
}
