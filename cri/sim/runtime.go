package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/playlet-dev/playlet/cri/sim/streams"
)

// Runtime is a simulated runtime. Start creates it, Close ends it.
type Runtime struct {
	opts    Options
	clock   Clock
	streams streams.Server
	wg      sync.WaitGroup // armed timers and crashes in progress

	serve  sync.Mutex // orders Down, Up, Reboot and Close; taken before mu
	server *grpc.Server
	served chan struct{} // closed when server's Serve has returned
	closed bool

	mu      sync.Mutex // guards everything below
	serving bool
	lives   uint64 // number of successful calls of Up
	timers  map[*timer]struct{}
	ids     uint64

	store   store
	images  imageStore
	events  eventHub
	network condition
	ready   condition

	seq        uint64
	journal    []*Entry
	happenings []*Entry // each call at its beginning and at its end
	faults     []*fault
	violations []string

	version  uint64
	changed  signal // sandboxes, containers, images, up or down
	recorded signal // journal
}

// Start listens on opts.Socket and serves until Close. It fails if the socket cannot be created.
func Start(opts Options) (*Runtime, error) {
	opts = opts.withDefaults()
	r := &Runtime{
		opts:    opts,
		clock:   opts.Clock,
		timers:  map[*timer]struct{}{},
		store:   newStore(),
		images:  newImageStore(opts.Images),
		network: condition{ok: true},
		ready:   condition{ok: true},
	}
	for _, ref := range opts.Preload {
		r.images.add(normalizeRef(ref))
	}
	if err := r.Up(); err != nil {
		return nil, err
	}
	return r, nil
}

// Endpoint returns the address for a CRI client, "unix:///path".
func (r *Runtime) Endpoint() string { return "unix://" + r.opts.Socket }

// Close ends the runtime: it cuts connections, ends calls in progress, cancels timers, closes log files and removes the socket.
// No goroutine of the runtime remains after it. A second Close does nothing.
func (r *Runtime) Close() {
	r.serve.Lock()
	if r.closed {
		r.serve.Unlock()
		return
	}
	r.closed = true
	r.downServing()
	r.mu.Lock()
	for t := range r.timers {
		r.cancelLocked(t)
	}
	for _, c := range r.store.containers {
		c.log.close()
	}
	r.mu.Unlock()
	r.removeSocket()
	r.streams.Close()
	r.serve.Unlock() // crashes in progress take the lock and then find nothing to do
	r.wg.Wait()
}

// changedLocked records a change of the visible state and wakes WaitFor.
func (r *Runtime) changedLocked() {
	r.version++
	r.changed.fire()
}

// newIDLocked returns the next ID: 64 hex digits, the same in each run, in no visible order.
func (r *Runtime) newIDLocked() string {
	r.ids++
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(make([]byte, 8, 16), r.ids))
	return hex.EncodeToString(sum[:])
}

func (r *Runtime) now() time.Time { return r.clock.Now() }
