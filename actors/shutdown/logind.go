package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

const (
	login1    = "org.freedesktop.login1"
	manager   = login1 + ".Manager"
	loginPath = dbus.ObjectPath("/org/freedesktop/login1")
	// dropIn is the kubelet's, which it replaces where either raises the limit of delays.
	dropIn      = "99-kubelet.conf"
	callTimeout = 10 * time.Second
	// reloadTimeout is how long a raised limit is waited for.
	reloadTimeout = 5 * time.Second
)

// Logind is the inhibitor of systemd-logind, on the system bus. Safe for concurrent use.
// https://systemd.io/INHIBITOR_LOCKS/
type Logind struct {
	need time.Duration
	conf string // the folder of logind's drop-ins

	awaiting sync.Mutex // held by Await, and guards the next three
	conn     *dbus.Conn
	signals  chan *dbus.Signal
	under    bool // a shutdown is in progress

	mu   sync.Mutex
	lock *os.File // nil where none is held
}

// NewLogind is for shutdowns that take as long as these groups, with the folder of logind's drop-ins. It connects when asked.
func NewLogind(groups []Group, conf string) *Logind { return &Logind{need: total(groups), conf: conf} }

// Await implements Inhibitor.
func (l *Logind) Await(ctx context.Context, was bool) (bool, error) {
	l.awaiting.Lock()
	defer l.awaiting.Unlock()
	if err := l.prepare(ctx); err != nil {
		return was, errors.Join(err, l.close())
	}
	for l.under == was {
		select {
		case s, ok := <-l.signals:
			if !ok {
				return was, errors.Join(errors.New("the connection to the system bus ended"), l.close())
			}
			if err := l.observe(ctx, s); err != nil {
				return was, errors.Join(err, l.close())
			}
		case <-ctx.Done():
			return was, nil
		}
	}
	return l.under, nil
}

// observe reads from logind whether a shutdown is in progress, when logind has sent its signal. Any local user can send a signal
// of that name, also to this connection alone, past the match rule: only the bus's word for the sender counts, and of the signal
// only that it came.
func (l *Logind) observe(ctx context.Context, s *dbus.Signal) error {
	if s.Name != manager+".PrepareForShutdown" || s.Path != loginPath {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var owner string
	err := l.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, login1).Store(&owner)
	if err != nil || s.Sender != owner {
		return nil //nolint:nilerr // a name without an owner has sent nothing
	}
	under, err := property[bool](ctx, l.conn, "PreparingForShutdown")
	if err == nil {
		l.under = under
	}
	return err
}

// prepare connects, and takes the lock where no shutdown is under way; the caller holds awaiting.
func (l *Logind) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+reloadTimeout)
	defer cancel()
	if l.conn == nil {
		if err := l.connect(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil || l.under {
		return nil
	}
	var fd dbus.UnixFD
	err := l.conn.Object(login1, loginPath).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "playlet",
		"pods are ended by their grace periods", "delay").Store(&fd)
	if err != nil {
		return fmt.Errorf("logind gives no lock to delay a shutdown: %w", err)
	}
	l.lock = os.NewFile(uintptr(fd), "inhibitor lock") //nolint:gosec // a descriptor is not negative
	return nil
}

func (l *Logind) connect(ctx context.Context) error {
	conn, err := dbus.ConnectSystemBus() // it outlives ctx
	if err != nil {
		return fmt.Errorf("there is no system bus to reach systemd-logind by: %w", err)
	}
	l.conn, l.signals = conn, make(chan *dbus.Signal, 16)
	conn.Signal(l.signals)
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(login1), dbus.WithMatchObjectPath(loginPath),
		dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForShutdown")); err != nil {
		return fmt.Errorf("signals of systemd-logind: %w", err)
	}
	// After that no signal is missed.
	if l.under, err = property[bool](ctx, conn, "PreparingForShutdown"); err != nil {
		return err
	}
	limit, err := l.limit(ctx)
	if err != nil || limit >= l.need {
		return err
	}
	return l.raise(ctx, limit)
}

func (l *Logind) limit(ctx context.Context) (time.Duration, error) {
	us, err := property[uint64](ctx, l.conn, "InhibitDelayMaxUSec")
	return time.Duration(min(us, uint64(time.Hour*24*365/time.Microsecond))) * time.Microsecond, err // bounded
}

// raise has logind wait for as long as a shutdown takes, as the kubelet does, and finds out whether it will.
func (l *Logind) raise(ctx context.Context, limit time.Duration) error {
	seconds := int64((l.need + time.Second - 1) / time.Second)
	failed := func(err error) error {
		return fmt.Errorf("logind delays a shutdown by %v at most, %v is needed, and it could not be raised (%w): set "+
			"InhibitDelayMaxSec=%d in a file of %s and restart systemd-logind", limit, l.need, err, seconds, l.conf)
	}
	if err := os.MkdirAll(l.conf, 0o755); err != nil { // as systemd has it
		return failed(err)
	}
	text := fmt.Sprintf("# Written by playlet, for its shutdown grace periods.\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
	if err := atomicfile.WriteFile(filepath.Join(l.conf, dropIn), []byte(text), 0o644); err != nil {
		return failed(err)
	}
	err := l.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(syscall.SIGHUP)).Err
	if err != nil {
		return failed(err)
	}
	for until := time.Now().Add(reloadTimeout); ; {
		now, err := l.limit(ctx)
		switch {
		case err != nil:
			return failed(err)
		case now >= l.need:
			return nil
		case time.Now().After(until):
			return failed(errors.New("logind did not apply the file"))
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return failed(ctx.Err())
		}
	}
}

func property[T any](ctx context.Context, conn *dbus.Conn, name string) (value T, err error) {
	var v dbus.Variant
	err = conn.Object(login1, loginPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name).Store(&v)
	if err == nil {
		err = v.Store(&value)
	}
	if err != nil {
		return value, fmt.Errorf("systemd-logind does not tell %s: %w", name, err)
	}
	return value, nil
}

// Release implements Inhibitor. It waits for no Await.
func (l *Logind) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.lock
	l.lock = nil
	if lock == nil {
		return nil
	}
	return lock.Close()
}

// Close implements Inhibitor: it gives up the lock and the connection.
func (l *Logind) Close() error {
	l.awaiting.Lock()
	defer l.awaiting.Unlock()
	return errors.Join(l.Release(), l.close())
}

// close gives up the connection, and the lock unless a shutdown is under way: the lock needs no connection. The caller holds
// awaiting.
func (l *Logind) close() (err error) {
	if !l.under {
		err = l.Release()
	}
	if l.conn != nil {
		err = errors.Join(err, l.conn.Close())
	}
	l.conn, l.signals, l.under = nil, nil, false
	return err
}
