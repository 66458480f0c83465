package images

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Service is the part of the CRI that the actor uses. *cri.Client implements it.
type Service interface {
	// ImageStatus returns nil and no error for an absent image.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.Image, map[string]string, error)
	// PullImage returns the runtime's reference of the image.
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Options configures the actor. Service and Operations are required.
type Options struct {
	Service Service
	// Operations is the process's table of operations. Keys of pulls begin with "image/pull/".
	Operations *cri.Operations
	// Serialize is serializeImagePulls of the configuration: one pull at a time, regardless of MaxParallel.
	Serialize bool
	// MaxParallel is maxParallelImagePulls; 0 leaves only the actor's own limit.
	MaxParallel int32
	// QPS and Burst are registryPullQPS and registryBurst: the number of pulls begun per second, and at once after a pause. A
	// QPS of 0 is no limit. A pull beyond the limit waits in the queue; the kubelet fails it.
	QPS, Burst int32
	// Objects has the Secrets of the pods' imagePullSecrets; nil if the node has none.
	Objects *objectset.Board
	// Sizes makes the actor report the size of pulled images.
	Sizes bool
	// AuthFiles are the possible paths of the node's docker configuration (see AuthFiles); the first existing file is used.
	AuthFiles []string
	// Providers are the node's credential provider plugins; nil for none.
	Providers *provider.Providers
	// Accounts has the service accounts of pods, for plugins that require them; nil without an API server.
	Accounts provider.Accounts
	// Records stores the credentials with which images were pulled; nil for no records.
	Records *pullrecord.Records
	// Policy decides which pods' credentials are verified before they use a present image.
	Policy pullrecord.Policy
	// Board has the pods. The collection keeps their images; nil: it keeps only requested images.
	Board *board.Board
	// Collect configures the collection of unused images; nil: none are removed.
	Collect *Collect
	// PullTimeout ends a pull after this time without any answer of the runtime; 0 means 1 h. The CRI reports no progress of a
	// pull, and runtimes themselves end a pull that stalls.
	PullTimeout time.Duration
}

const (
	lookTimeout        = 2 * time.Minute
	defaultPullTimeout = time.Hour
	// pullPrefix is the prefix of the keys of pulls in the table of operations.
	pullPrefix = "image/pull/"
)

// New returns the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.PullTimeout == 0 {
		opts.PullTimeout = defaultPullTimeout
	}
	if opts.Serialize {
		opts.MaxParallel = 1
	}
	secret := []byte(rand.Text())
	return func(string) supervisors.Actor {
		machine := newMachine(lanes.New(opts.MaxParallel, opts.QPS, opts.Burst))
		machine.policy = opts.Policy
		return &images{
			opts: opts, secret: secret, machine: machine,
			began: map[pullKey]time.Time{},
			held:  map[messages.ImageKey]*heldNeed{}, unfound: map[string]string{}, gc: collector{
				times: map[string]imageTimes{}, leases: map[messages.ImageKey]lease{},
				waiting: map[messages.ImageKey]messages.PullImage{},
			},
			fetches: map[string]*fetch{}, places: shares.New("pulls within the last minutes", maxFetches),
		}
	}
}

// Slots returns the number of concurrent pulls that the CRI client must allow: the slots, and as many pulls that lent theirs.
func (o Options) Slots() int {
	if o.Serialize {
		return 2
	}
	return 2 * lanes.New(o.MaxParallel, 0, 0).Limit()
}

type images struct {
	opts    Options
	secret  []byte // keys the fingerprints of credentials; one per process, so that a restarted actor recognizes pulls
	machine *machine
	began   map[pullKey]time.Time // of the pulls in progress
	timer   supervisors.Timer
	next    time.Time // when timer fires
	held    map[messages.ImageKey]*heldNeed
	fetches map[string]*fetch // by ID
	places  *shares.Limit     // of fetches
	// unfound are the pull secrets reported as missing, by the UID of the pod.
	unfound map[string]string
	gc      collector
}

// The results of work, and the timer's message.
type (
	lookResult struct {
		name    string
		outcome outcome
	}
	pullResult struct {
		key     pullKey
		outcome outcome
	}
	// pullWaitEnded means that the wait for a pull has timed out. The actor waits again.
	pullWaitEnded struct {
		key      pullKey
		priority int64
	}
	timerFired struct{}
)

func (a *images) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.adopt(ctx)
		a.startCollecting(ctx)
	case messages.PullImage:
		a.handlePullImage(ctx, m)
	case messages.ForgetImages:
		a.drop(m.UID)
		a.carryOut(ctx, a.machine.forget(ctx.Now(), m.UID))
	case messages.ObjectsChanged:
		a.carryOut(ctx, a.machine.refresh(ctx.Now(), func(pod *v1.Pod, image string) credentials {
			name, _ := parseName(image) // it was valid in the request
			k := a.credentialsOf(pod, name.repository)
			a.tellUnfound(ctx, pod, k)
			return k
		}))
		a.askHeld(ctx)
	case collectDue:
		a.gc.timer = nil
		a.collect(ctx)
	case messages.ReclaimImages:
		a.gc.all = a.opts.Collect != nil
		a.collect(ctx)
	case messages.GetImages, messages.RemoveImage, messages.FetchImage, listResult:
		a.handleClientRequest(ctx, msg)
	case surveyResult:
		a.onSurveyed(ctx, m)
	case imageRemoved:
		a.onImageRemoved(ctx, m)
	case removalsSettled:
		a.gc.settling = false
		a.askWaiting(ctx)
		a.collect(ctx)
	case holdTimeout:
		a.release(ctx, m)
	case lookResult:
		if p := m.outcome.record.Problem; p != nil {
			ctx.Log().Warn("an image pull record cannot be read; the image counts as pulled with unknown credentials",
				"image", m.name, "error", p)
		}
		a.carryOut(ctx, a.machine.handleLook(ctx.Now(), m.name, m.outcome))
	case checkResult:
		a.carryOut(ctx, a.machine.handleCheck(ctx.Now(), m))
	case pullWaitEnded:
		a.pull(ctx, m.key, m.priority, joinOnly)
	case pullResult:
		took := ctx.Now().Sub(a.began[m.key])
		logPull(a.log(ctx, m.key), m, took)
		if m.outcome.result == present {
			metrics.Pulled(m.outcome.size, took)
		}
		delete(a.began, m.key)
		a.carryOut(ctx, a.machine.pulledOutcome(ctx.Now(), m.key.name, m.key.id, m.outcome))
	case timerFired:
		a.timer, a.next = nil, time.Time{}
		a.carryOut(ctx, a.machine.tick(ctx.Now()))
	default:
		ctx.Unhandled(msg)
	}
}

// handlePullImage handles PullImage. An invalid name is refused at once, and the need is dropped.
func (a *images) handlePullImage(ctx supervisors.Context, m messages.PullImage) {
	name, err := parseName(m.Image)
	if err != nil {
		ctx.Tell(messages.PodAddress(m.Key.UID), messages.ImageFailed{Key: m.Key, Image: m.Image, Reason: messages.Reason{
			Code:      messages.ReasonInvalidImageName,
			Message:   fmt.Sprintf("%q is not the name of an image: %v", m.Image, err),
			Permanent: true,
		}})
		return
	}
	a.gc.wanted(m.Image)
	if a.waitsForRemoval(m) {
		return
	}
	k := a.credentialsOf(m.Pod, name.repository)
	if k.unread && a.hold(ctx, m) {
		return
	}
	delete(a.held, m.Key)
	a.tellUnfound(ctx, m.Pod, k)
	a.carryOut(ctx, a.machine.ask(ctx.Now(), request{PullImage: m, name: name.runtime, registry: name.registry, credentials: k}))
}

// carryOut carries out the machine's effects, and sets the timer for its next tick.
func (a *images) carryOut(ctx supervisors.Context, effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case podMessage:
			if id, is := strings.CutPrefix(e.uid, fetchUID); is {
				a.handleFetchMessage(ctx, id, e)
				continue
			}
			if m, ok := e.msg.(messages.ImagePulled); ok {
				a.lease(m, ctx.Now())
				if m.Pulled && !m.Again {
					metrics.PulledFor(types.UID(e.uid), ctx.Now().Add(-m.Took), ctx.Now())
				}
			}
			ctx.Tell(messages.PodAddress(e.uid), e.msg)
		case startLook:
			ctx.Do(supervisors.Work{Name: "ImageStatus " + e.name, Timeout: lookTimeout, Run: func(ctx context.Context) any {
				return lookResult{e.name, look(ctx, a.opts.Service, a.opts.Records, e.name)}
			}})
		case startPull:
			log := a.log(ctx, pullKey{e.credentials.id, e.name})
			log.Info("pulling an image", "image", e.name)
			a.pull(ctx, pullKey{e.credentials.id, e.name}, e.priority, func(ctx context.Context) (string, error) {
				name, err := parseName(e.name)
				if err != nil {
					return "", err // impossible: it was valid in the request
				}
				return a.pullWith(ctx, log, name, e.credentials)
			})
		case endPull:
			key := pullKey{e.id, e.name}
			a.log(ctx, key).Info("cutting off the pull of an image that no pod needs", "image", e.name)
			a.opts.Operations.CutOff(key.String())
		case startCheck:
			a.check(ctx, e)
		}
	}
	next := a.machine.due()
	if next.Equal(a.next) {
		return
	}
	if a.timer != nil {
		a.timer.Cancel()
		a.timer = nil
	}
	if a.next = next; !next.IsZero() {
		a.timer = ctx.After(max(next.Sub(ctx.Now()), 0), timerFired{})
	}
}

func (a *images) Inspect() any {
	i := a.machine.inspect()
	i.Known, i.Leased, i.Collecting = len(a.gc.times), len(a.gc.leases), a.gc.current != nil
	return i
}

// log returns a logger with the pod that waits for a pull, or the first of several.
func (a *images) log(ctx supervisors.Context, of pullKey) *slog.Logger {
	if im := a.machine.images[of.name]; im != nil {
		if needs := im.pulling(of.id); len(needs) > 0 && !strings.HasPrefix(needs[0].key.UID, fetchUID) {
			return ctx.Log().With("pod", needs[0].key.UID)
		}
	}
	return ctx.Log()
}

func logPull(log *slog.Logger, m pullResult, took time.Duration) {
	switch m.outcome.result {
	case present:
		log.Info("pulled an image", "image", m.key.name, "id", m.outcome.ref, "took", took)
	case failed:
		log.Warn("could not pull an image", "image", m.key.name, "reason", m.outcome.code, "error", m.outcome.msg, "took", took)
	case absent, unreachable: // nothing was pulled, and the image has no problem
	}
}
