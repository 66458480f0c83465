package shutdown

import (
	"cmp"
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
	"github.com/playlet-dev/playlet/config/systemd"
)

const (
	login1      = "org.freedesktop.login1"
	manager     = login1 + ".Manager"
	loginPath   = dbus.ObjectPath("/org/freedesktop/login1")
	callTimeout = 10 * time.Second
	// reloadTimeout is how long a raised limit is waited for.
	reloadTimeout = 5 * time.Second
	raiseTimeout  = callTimeout + 2*reloadTimeout // for each of dropIns
	// askAgain is the pause after a failed question to logind while the lock is held.
	askAgain = 200 * time.Millisecond
)

// dropIns are the files that raise the limit of delays, in the order of the tries. The first is the kubelet's, which it replaces
// where either raises the limit. The last name among all files counts (logind.conf.d(5)): unattended-upgrades of Debian has one
// behind the kubelet's, with 30 s (kubernetes/kubernetes#102818).
var dropIns = []string{"99-kubelet.conf", filepath.Base(systemd.LogindPath)}

// ShortDelay is the error of an inhibitor that delays a shutdown, but not for as long as pods may need.
type ShortDelay struct{ error }

// Logind is the inhibitor of systemd-logind, on the system bus. Safe for concurrent use.
// https://systemd.io/INHIBITOR_LOCKS/
type Logind struct {
	need time.Duration
	conf string // the folder of logind's drop-ins

	awaiting sync.Mutex // held by Await, and guards the next seven
	conn     *dbus.Conn
	signals  chan *dbus.Signal
	under    bool // a shutdown is in progress, by the last answer of logind
	answered bool // logind has answered since its last signal and since conn was made
	// short is the reason why the lock delays for less than need; reported: Await has returned it.
	short    error
	reported bool
	failed   bool // Await has returned an error since it last returned without

	mu   sync.Mutex
	lock *os.File // nil where none is held
}

// NewLogind is for shutdowns that take as long as these groups, with the folder of logind's drop-ins. It connects when asked.
func NewLogind(groups []Group, conf string) *Logind { return &Logind{need: total(groups), conf: conf} }

// Await implements Inhibitor. A lock that is held is kept whatever fails: logind may be waiting for it. Logind is then asked
// again for as long as a shutdown takes. A ShortDelay is returned at once, and again at the end of ctx.
func (l *Logind) Await(ctx context.Context, was bool) (bool, error) {
	l.awaiting.Lock()
	defer l.awaiting.Unlock()
	until, tried := time.Now().Add(l.need), false
	for {
		err := l.ask(ctx)
		if err == nil {
			if l.under != was {
				return l.under, nil
			}
			err = l.hold(ctx)
		}
		if err == nil && l.short != nil {
			if !l.reported {
				l.reported = true
				return was, ShortDelay{l.short}
			}
			if !l.under && !tried {
				tried = true // one attempt for each Await: any local user can send signals
				l.raiseLimit(ctx)
			}
			if l.short == nil {
				l.reported = false
				return was, nil
			}
		} else if err == nil && l.failed {
			l.failed = false
			return was, nil // the lock is held again, which the caller reports
		}
		switch {
		case err == nil:
			select {
			case s, ok := <-l.signals:
				l.observe(s, ok)
				until = time.Now().Add(l.need)
			case <-ctx.Done():
				if l.short != nil {
					return was, ShortDelay{l.short}
				}
				return was, nil
			}
		case ctx.Err() != nil:
			return was, l.disconnect()
		case !l.holds() || time.Now().After(until):
			l.failed = true
			return was, errors.Join(err, l.disconnect())
		default:
			_ = l.disconnect() // it may be the connection that fails
			select {
			case <-time.After(askAgain):
			case <-ctx.Done():
			}
		}
	}
}

// observe has logind asked after its signal, and after the end of the connection, which may have hidden one. Any local user can
// send a signal of that name, also to this connection alone, past the match rule: so only the answer counts.
func (l *Logind) observe(s *dbus.Signal, connected bool) {
	if !connected {
		_ = l.disconnect() // it has ended
	} else if s.Name == manager+".PrepareForShutdown" && s.Path == loginPath {
		l.answered = false
	}
}

// ask connects, and reads whether a shutdown is in progress, unless logind has answered that. The caller holds awaiting.
func (l *Logind) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.connect(ctx); err != nil || l.answered {
		return err
	}
	under, err := property[bool](ctx, l.conn, "PreparingForShutdown")
	if err == nil {
		l.under, l.answered = under, true
	}
	return err
}

// hold takes the lock unless it is held or a shutdown is in progress. If the limit of delays cannot be raised, a shutdown waits
// for a part of the time, which is more than nothing. The caller holds awaiting.
func (l *Logind) hold(ctx context.Context) error {
	if l.under || l.holds() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, raiseTimeout)
	defer cancel()
	var fd dbus.UnixFD
	err := l.conn.Object(login1, loginPath).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "playlet",
		"pods are ended by their grace periods", "delay").Store(&fd)
	if err != nil {
		return fmt.Errorf("logind gives no lock to delay a shutdown: %w", err)
	}
	lock := os.NewFile(uintptr(fd), "inhibitor lock") //nolint:gosec // a descriptor is not negative
	l.mu.Lock()
	l.lock = lock
	l.mu.Unlock()
	l.reported = false
	l.raiseLimit(ctx) // after the lock: a shutdown may begin meanwhile
	return nil
}

// raiseLimit raises logind's limit of delays if it is too short, and stores the result in short. The caller holds awaiting.
func (l *Logind) raiseLimit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, raiseTimeout)
	defer cancel()
	limit, err := l.limit(ctx)
	if err == nil && limit < l.need {
		err = l.raise(ctx, limit)
	}
	l.short = err
}

func (l *Logind) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lock != nil
}

// connect connects to the bus unless that is done. It misses no signal that is sent after it returns.
func (l *Logind) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	conn, err := dbus.ConnectSystemBus() // it outlives ctx
	if err != nil {
		return fmt.Errorf("no system bus to reach systemd-logind: %w", err)
	}
	l.conn, l.signals = conn, make(chan *dbus.Signal, 16)
	conn.Signal(l.signals)
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(login1), dbus.WithMatchObjectPath(loginPath),
		dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForShutdown")); err != nil {
		return errors.Join(fmt.Errorf("signals of systemd-logind: %w", err), l.disconnect())
	}
	return nil
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
	for _, name := range dropIns {
		if err := atomicfile.WriteFile(filepath.Join(l.conf, name), []byte(text), 0o644); err != nil {
			return failed(err)
		}
		if applied, err := l.reload(ctx); err != nil {
			return failed(err)
		} else if applied {
			return nil
		}
	}
	return failed(errors.New("logind did not apply the file"))
}

// reload has logind read its configuration, and reports whether its limit suffices then.
func (l *Logind) reload(ctx context.Context) (bool, error) {
	err := l.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(syscall.SIGHUP)).Err
	if err != nil {
		return false, err
	}
	for until := time.Now().Add(reloadTimeout); ; {
		now, err := l.limit(ctx)
		switch {
		case err != nil:
			return false, err
		case now >= l.need:
			return true, nil
		case time.Now().After(until):
			return false, nil
		}
		if under, err := property[bool](ctx, l.conn, "PreparingForShutdown"); under || err != nil {
			return false, cmp.Or(err, errors.New("a shutdown has begun"))
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return false, ctx.Err()
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
	return errors.Join(l.Release(), l.disconnect())
}

// disconnect gives up the connection, and keeps the lock, which needs none. The caller holds awaiting.
func (l *Logind) disconnect() (err error) {
	if l.conn != nil {
		err = l.conn.Close()
	}
	l.conn, l.signals, l.answered = nil, nil, false
	return err
}
