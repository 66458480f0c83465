package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/dra/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	dialer "github.com/playlet-dev/playlet/actors/internal/plugin"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// File is the name of the checkpoint in the root folder, the kubelet's.
const File = "dra_manager_state"

// writeTimeout is how long a write of the checkpoint is awaited.
const writeTimeout = 15 * time.Second

// Options configure a Manager.
type Options struct {
	// Client reads ResourceClaims and deletes ResourceSlices.
	Client   kubernetes.Interface
	NodeName string
	RootDir  string // has the checkpoint
	// Extended enables extended resources of ResourceClaims [DRAExtendedResource].
	Extended bool
	// Health enables the health of devices [ResourceHealthStatus], Messages the drivers' explanations of it
	// [ResourceHealthStatusMessage].
	Health, Messages bool
	// Retry is the delay after so many failed deletions of ResourceSlices.
	Retry func(tries int) time.Duration
	Log   *slog.Logger
}

// Manager is the process's. Safe for concurrent use. Only Prepare, Unprepare and Devices wait for plugins, the API server and the
// disk.
type Manager struct {
	client    kubernetes.Interface
	nodeName  string
	extended  bool
	messages  bool
	retry     func(tries int) time.Duration
	wipeDelay time.Duration
	wipeRetry time.Duration        // after an answer that the API server has no ResourceSlices
	pace      func() *rate.Limiter // of each plugin's reports of health, and of its connections
	log       *slog.Logger
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	file      *overdue.Writer[[]checkpoint.Claim]
	loops     sync.WaitGroup
	locks     locks
	damage    string
	unwritten atomic.Bool // the last write of the checkpoint failed

	mu             sync.Mutex
	table          table
	plugins        plugins
	wipes          map[string]context.CancelFunc // planned deletions of slices, by driver
	health         reports                       // nil: it is not watched
	healthChanged  func(uid string)
	driversChanged func()
}

// New reads the checkpoint. It returns no error: an unreadable checkpoint is set aside and logged, and Damage reports it.
func New(o Options) *Manager {
	m := &Manager{client: o.Client, nodeName: o.NodeName, extended: o.Extended, messages: o.Messages, retry: o.Retry,
		wipeDelay: wipeDelay, wipeRetry: wipeRetry, pace: dialer.Pace, log: o.Log, table: table{}, plugins: plugins{},
		wipes: map[string]context.CancelFunc{}, healthChanged: func(string) {}, driversChanged: func() {}}
	if o.Health {
		m.health = reports{}
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	path := filepath.Join(o.RootDir, File)
	m.file = overdue.NewWriter("the checkpoint of ResourceClaims", writeTimeout, func(claims []checkpoint.Claim) error {
		text, err := checkpoint.Encode(claims)
		if err != nil { // a bug: every value can be encoded
			return err
		}
		return atomicfile.WriteFile(path, text, 0o600)
	})
	m.load(path)
	return m
}

func (m *Manager) load(path string) {
	err := atomicfile.LoadText(path, func(text []byte) error {
		claims, err := checkpoint.Decode(text)
		m.table = restore(claims)
		return err
	})
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	m.damage = "the prepared ResourceClaims are unknown; those of running pods are prepared again when a container of theirs " +
		"starts, and drivers are not asked to unprepare others: " + err.Error()
	m.log.Warn("the checkpoint of ResourceClaims cannot be read; replacing it", "error", err)
}

// Damage is a sentence on the checkpoint where it could not be read; empty: it could. It does not block.
func (m *Manager) Damage() string { return m.damage }

// Notify registers two functions that must not block: health receives the UIDs of pods with a device that changed its health, and
// drivers is called after each registration. It does nothing with a nil Manager.
func (m *Manager) Notify(health func(uid string), drivers func()) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.healthChanged, m.driversChanged = health, drivers
}

// Close ends the connections and the deletions of slices. Plugins run on, and register with the next agent. It does nothing with
// a nil Manager.
func (m *Manager) Close() {
	if m == nil {
		return
	}
	m.cancel()
	m.locked(func() {
		for _, all := range m.plugins {
			for _, p := range all {
				_ = p.conn.Close() // calls in progress fail
			}
		}
	})
	m.loops.Wait()
}

// locked calls f with the lock.
func (m *Manager) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// put schedules the present table for the next flush. The caller holds mu.
func (m *Manager) put() {
	m.file.Set(m.table.state())
	metrics.ClaimsInUse(m.table.inUse())
}

func (m *Manager) flush() error {
	err := m.file.Flush()
	if m.unwritten.Store(err != nil); err != nil {
		return fmt.Errorf("checkpoint ResourceClaims: %w", err)
	}
	return nil
}

// Prepare has drivers prepare the claims of a pod that they have not prepared yet. It is idempotent, also after an error. The
// error has a cause that names the claim or the driver.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) (err error) {
	defer func(began time.Time) {
		metrics.Since(metrics.ClaimTime, began, "PrepareResources", strconv.FormatBool(err != nil))
	}(time.Now())
	claims, err := m.read(ctx, pod)
	if err != nil || len(claims) == 0 {
		return err
	}
	var keys []key
	for _, c := range claims {
		keys = append(keys, key{Namespace: c.Namespace, Name: c.Name})
	}
	unlock, err := m.locks.lock(ctx, keys)
	if err != nil {
		return err
	}
	defer unlock()
	var todo batch
	m.locked(func() {
		if todo, err = m.table.begin(string(pod.UID), claims, m.damage != ""); err == nil {
			m.put()
		}
	})
	if err != nil {
		return err
	}
	if err := m.flush(); err != nil { // the next agent unprepares whatever is prepared from here on
		return err
	}
	err = m.each(todo, func(p *plugin, claims []*claim) error { return m.prepare(ctx, p, claims) })
	m.locked(m.put)
	return errors.Join(err, m.flush())
}

// read returns the claims of a pod from the API server. It returns an error if the pod cannot use one, or a driver is not there:
// then nothing has happened yet.
func (m *Manager) read(ctx context.Context, pod *v1.Pod) (out []*resourceapi.ResourceClaim, err error) {
	needs, err := needsOf(pod, m.extended)
	if err != nil {
		return nil, err
	}
	for _, n := range needs {
		claim, err := m.client.ResourceV1().ResourceClaims(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
		of := messages.Cause{Kind: claimKind, Name: n.String()}
		switch {
		case apiclient.Absent(err):
			return nil, of.Absent()
		case err != nil:
			return nil, of.Unread(err)
		}
		if err := n.check(pod, claim); err != nil {
			return nil, err
		}
		for _, driver := range driversOf(claim) {
			if _, err := m.plugin(driver, n.String()); err != nil {
				return nil, err
			}
		}
		out = append(out, claim)
	}
	return out, nil
}

// each calls the drivers of a batch, side by side. The error joins all drivers' errors, in the order of their names.
func (m *Manager) each(todo batch, call func(p *plugin, claims []*claim) error) error {
	drivers := make([]string, 0, len(todo))
	for driver := range todo {
		drivers = append(drivers, driver)
	}
	slices.Sort(drivers)
	errs := make([]error, len(drivers))
	var calls sync.WaitGroup
	for i, driver := range drivers {
		calls.Go(func() {
			errs[i] = guard.Call(m.log, "call of DRA driver "+driver, func() error {
				p, err := m.plugin(driver, names(todo[driver]))
				if err != nil {
					return err
				}
				return call(p, todo[driver])
			})
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// prepare calls one driver, and records the devices of each claim.
func (m *Manager) prepare(ctx context.Context, p *plugin, claims []*claim) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := p.calls().NodePrepareResources(ctx, &api.NodePrepareResourcesRequest{Claims: request(claims)})
	return m.results(p, "NodePrepareResources", claims, err, func(c *claim) (failure string, answered bool) {
		r, answered := out.GetClaims()[string(c.ClaimUID)]
		if answered && r.GetError() == "" {
			m.table.prepared(c, p.driver, r.GetDevices())
		}
		return r.GetError(), answered
	})
}

// unprepare calls one driver, and records the claims that it has unprepared.
func (m *Manager) unprepare(ctx context.Context, p *plugin, claims []*claim) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := p.calls().NodeUnprepareResources(ctx, &api.NodeUnprepareResourcesRequest{Claims: request(claims)})
	return m.results(p, "NodeUnprepareResources", claims, err, func(c *claim) (failure string, answered bool) {
		r, answered := out.GetClaims()[string(c.ClaimUID)]
		if answered && r.GetError() == "" {
			c.done.Insert(p.driver)
		}
		return r.GetError(), answered
	})
}

// results takes the answers of a call, claim by claim, with the lock held. The error names the driver and the failed claims.
func (m *Manager) results(p *plugin, method string, claims []*claim, err error, take func(*claim) (string, bool)) error {
	cause := messages.Cause{Code: messages.CauseClaimDriverFailed, Name: p.driver, Detail: names(claims)}
	if err != nil {
		cause.Text = messages.OneLine(err)
		return cause.Errorf("%s: %w", method, err)
	}
	var errs []error
	m.locked(func() {
		for _, c := range claims {
			cause.Detail = c.key().String()
			failure, answered := take(c)
			switch failure = dialer.Shorten(failure); {
			case !answered:
				cause.Text = "it returned no result"
				errs = append(errs, cause.Errorf("%s skipped ResourceClaim %s", method, c.ClaimName))
			case failure != "":
				cause.Text = failure
				errs = append(errs, cause.Errorf("%s failed for ResourceClaim %s: %s", method, c.ClaimName, failure))
			}
		}
	})
	return errors.Join(errs...)
}

// Unprepare ends a pod's use of its claims, and has drivers unprepare those that no other pod uses. Nothing of the pod may run.
// It is idempotent, also after an error, which has a cause that names the driver and the claims.
func (m *Manager) Unprepare(ctx context.Context, uid string) (err error) {
	var keys []key
	m.locked(func() { keys = m.table.of(uid) })
	if len(keys) == 0 {
		if m.unwritten.Load() {
			return m.flush()
		}
		return nil
	}
	defer func(began time.Time) {
		metrics.Since(metrics.ClaimTime, began, "UnprepareResources", strconv.FormatBool(err != nil))
	}(time.Now())
	unlock, err := m.locks.lock(ctx, keys)
	if err != nil {
		return err
	}
	defer unlock()
	var todo batch
	m.locked(func() { todo = m.table.end(uid) })
	err = m.each(todo, func(p *plugin, claims []*claim) error { return m.unprepare(ctx, p, claims) })
	m.locked(func() {
		m.table.settle(uid)
		m.put()
	})
	return errors.Join(err, m.flush())
}

// Holders returns the UIDs of the pods that use claims, sorted. It does not block.
func (m *Manager) Holders() (out []string) {
	m.locked(func() { out = m.table.holders() })
	return out
}
