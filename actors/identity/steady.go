package identity

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/certificate"

	"github.com/playlet-dev/playlet/actors/internal/suspend"
)

// replanRest is the least time between two new plans, unless there is no valid certificate. The library's goroutine of an
// abandoned plan sleeps on.
const replanRest = 10 * time.Minute

// steadyManager is the library's manager of one certificate, which plans the rotation again after the clock was set. The library
// computes the time until the rotation once, and sleeps for it by the monotonic clock. A node that began with the clock of 1970
// would never rotate its certificate, and a machine that was suspended would rotate it too late. Safe for concurrent use.
type steadyManager struct {
	ctx   context.Context // of the process
	build builder
	now   func() time.Time
	log   *slog.Logger

	mu      sync.Mutex
	manager certificate.Manager
	stop    context.CancelFunc
	started bool
	planned time.Time
	again   bool // planned is the time of a new plan
}

// builder makes the library's manager. again means that one was made before in this process: its store has the newest
// certificate, and must not get an older one, even if that one has expired.
type builder func(ctx context.Context, again bool) (certificate.Manager, error)

// newSteady makes the first manager, and does not start it.
func newSteady(ctx context.Context, log *slog.Logger, build builder) (*steadyManager, error) {
	s := &steadyManager{ctx: ctx, build: build, now: time.Now, log: log}
	return s, s.plan()
}

// plan replaces the manager. The caller holds the lock, or is alone.
func (s *steadyManager) plan() error {
	ctx, stop := context.WithCancel(s.ctx)
	m, err := s.build(ctx, s.manager != nil)
	if err != nil {
		stop()
		return err
	}
	if s.stop != nil {
		s.stop()
	}
	s.manager, s.stop, s.planned = m, stop, s.now()
	if s.started {
		m.Start()
	}
	return nil
}

// Current returns the certificate in force; nil for none.
func (s *steadyManager) Current() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.Current()
}

// Start begins the rotation, or the request for a first certificate. Further calls plan the rotation again if the clock was set.
func (s *steadyManager) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		s.manager.Start()
		return
	}
	now := s.now()
	by := suspend.Set(s.planned, now)
	rests := s.again && now.Sub(s.planned) < replanRest && s.manager.Current() != nil
	if by == 0 || rests || s.ctx.Err() != nil {
		return
	}
	s.log.Info("the clock was set; rescheduling the rotation of a certificate", "by", by)
	if err := s.plan(); err != nil {
		s.log.Warn("the rotation of a certificate could not be rescheduled", "error", err)
		return
	}
	s.again = true
}
