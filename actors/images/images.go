package images

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Service is what the actor needs of the CRI; *cri.Client has it.
type Service interface {
	// ImageStatus returns nil and no error for an image that is not there.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.Image, map[string]string, error)
	// PullImage returns the runtime's reference of the image.
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Options are what the actor needs. Service and Operations are required.
type Options struct {
	Service Service
	// Operations is the process's table; pulls live there under "image/pull/<image>".
	Operations *cri.Operations
	// Serialize is serializeImagePulls of the configuration: one pull at a time, whatever MaxParallel says.
	Serialize bool
	// MaxParallel is maxParallelImagePulls; 0 is no bound of its own, so that the CRI client's alone holds.
	MaxParallel int32
	// PullTimeout bounds one pull; 0 means 1 h. A runtime ends a pull that makes no progress by itself.
	PullTimeout time.Duration
}

const (
	lookTimeout        = 2 * time.Minute
	defaultPullTimeout = time.Hour
	// pullPrefix begins the keys of pulls in the table of operations.
	pullPrefix = "image/pull/"
)

// New is the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.PullTimeout == 0 {
		opts.PullTimeout = defaultPullTimeout
	}
	limit := math.MaxInt
	switch {
	case opts.Serialize:
		limit = 1
	case opts.MaxParallel > 0:
		limit = int(opts.MaxParallel)
	}
	return func(string) supervisors.Actor {
		return &images{opts: opts, book: newBook(limit), began: map[string]time.Time{}}
	}
}

type images struct {
	opts  Options
	book  *book
	began map[string]time.Time // of the pulls under way, by image
	timer supervisors.Timer
	next  time.Time // when timer fires
}

// The results of work, and the timer's message.
type (
	looked struct {
		name    string
		outcome outcome
	}
	pulled struct {
		name    string
		outcome outcome
	}
	due struct{}
)

// Receive implements supervisors.Actor.
func (a *images) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.adopt(ctx)
	case messages.PullImage:
		a.asked(ctx, m)
	case messages.ForgetImages:
		a.carryOut(ctx, a.book.forget(m.UID))
	case looked:
		a.carryOut(ctx, a.book.looked(ctx.Now(), m.name, m.outcome))
	case pulled:
		logPull(ctx.Log(), m, ctx.Now().Sub(a.began[m.name]))
		delete(a.began, m.name)
		a.carryOut(ctx, a.book.pulledOutcome(ctx.Now(), m.name, m.outcome))
	case due:
		a.timer, a.next = nil, time.Time{}
		a.carryOut(ctx, a.book.tick(ctx.Now()))
	default:
		ctx.Unhandled(msg)
	}
}

// asked checks the name; one that is none will never be one, so the need is not kept.
func (a *images) asked(ctx supervisors.Context, m messages.PullImage) {
	name, err := runtimeName(m.Image)
	if err != nil {
		ctx.Tell(messages.PodAddress(m.Key.UID), messages.ImageFailed{Key: m.Key, Image: m.Image, Reason: messages.Reason{
			Code:      messages.ReasonInvalidImageName,
			Message:   fmt.Sprintf("%q is not the name of an image: %v", m.Image, err),
			Permanent: true,
		}})
		return
	}
	a.carryOut(ctx, a.book.ask(name, m))
}

// carryOut does what the book says, and sees to it that it is asked again in time.
func (a *images) carryOut(ctx supervisors.Context, effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case tellPod:
			ctx.Tell(messages.PodAddress(e.uid), e.msg)
		case startLook:
			ctx.Do(supervisors.Work{Name: "ImageStatus " + e.name, Timeout: lookTimeout, Run: func(ctx context.Context) any {
				return looked{e.name, look(ctx, a.opts.Service, e.name)}
			}})
		case startPull:
			ctx.Log().Info("pulling an image", "image", e.name)
			a.pull(ctx, e.name, e.priority, func(ctx context.Context) (string, error) {
				return a.opts.Service.PullImage(ctx, &runtimeapi.ImageSpec{Image: e.name}, nil, nil)
			})
		}
	}
	next := a.book.due()
	if next.Equal(a.next) {
		return
	}
	if a.timer != nil {
		a.timer.Cancel()
		a.timer = nil
	}
	if a.next = next; !next.IsZero() {
		a.timer = ctx.After(max(next.Sub(ctx.Now()), 0), due{})
	}
}

// Inspect implements supervisors.Inspectable.
func (a *images) Inspect() any { return a.book.inspect() }

func logPull(log *slog.Logger, m pulled, took time.Duration) {
	switch m.outcome.result {
	case present:
		log.Info("pulled an image", "image", m.name, "id", m.outcome.ref, "took", took)
	case failed:
		log.Warn("could not pull an image", "image", m.name, "reason", m.outcome.code, "error", m.outcome.msg, "took", took)
	case absent, unreachable: // nothing was pulled, and nothing is wrong with the image
	}
}
