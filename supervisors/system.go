package supervisors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	cmap "github.com/orcaman/concurrent-map"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/messages"
)

// Options configure a System.
type Options struct {
	// Tree is the table to run; nil means Tree of this package.
	Tree *Row
	// Constructors has one constructor for each kind of the table. A kind mapped to nil is switched off by
	// configuration and not spawned; a kind that is missing is an error.
	Constructors map[Kind]Constructor
	Clock        clock.WithDelayedExecution // nil: the real one
	Log          *slog.Logger               // nil: discards
	Interceptor  Interceptor                // nil: none; for chaos
	// WorkContext adds values to the context of work; id is the work's entry. It must not block, and may be nil.
	WorkContext func(ctx context.Context, flow Flow, id uint64) context.Context
	// Fatal is called once, from any goroutine, when the root itself has failed: the process must exit.
	Fatal func(error)
}

// System is a running tree.
type System struct {
	opts     Options
	as       *actor.ActorSystem
	clock    clock.WithDelayedExecution
	log      *slog.Logger
	root     *actor.PID
	seq      atomic.Uint64
	lives    sync.Map       // messages.Address -> *life
	newest   sequenceFilter // used with an interceptor alone
	recorder *Recorder
	metrics  *metrics
	fatal    sync.Once

	up    chan struct{} // closed when the root has spawned its children
	ended chan struct{} // closed when the root has terminated

	Counters Counters
}

// Counters count events of the layer, beside its metrics. They may be read at any time.
type Counters struct{ Stale, Panics, Restarts atomic.Uint64 }

// protoactor finds an actor in one of 1,024 maps, each of 32 maps: 33,000 maps that hold some hundred actors and take 3 MiB. This
// is set before there is any.
var _ = func() struct{} { cmap.SHARD_COUNT = 1; return struct{}{} }()

// Start spawns the tree and returns when the root has spawned its children, so that whoever asks for one from then on finds it.
func Start(opts Options) (*System, error) {
	opts.Tree = cmp.Or(opts.Tree, &Tree)
	opts.Clock = cmp.Or[clock.WithDelayedExecution](opts.Clock, clock.RealClock{})
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.WorkContext == nil {
		opts.WorkContext = func(ctx context.Context, _ Flow, _ uint64) context.Context { return ctx }
	}
	if opts.Fatal == nil {
		opts.Fatal = func(error) {}
	}
	if err := missingConstructors(opts); err != nil {
		return nil, err
	}
	s := &System{
		opts: opts, clock: opts.Clock, log: opts.Log, recorder: NewRecorder(), metrics: newMetrics(opts.Tree),
		up: make(chan struct{}), ended: make(chan struct{}),
	}
	s.as = actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleCount(0), // we count and log them ourselves
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
		actor.WithDeadLetterRequestLogging(false),
	)
	s.as.EventStream.Subscribe(s.onDeadLetter)
	root := newCell(s, opts.Tree, messages.Node, newStarted(s, messages.Node))
	s.newLife(messages.Node, opts.Tree.Kind).begin(root)
	props := s.props(root)
	pid, err := s.as.Root.SpawnNamed(props.Configure(actor.WithGuardian(topStrategy{s})), string(opts.Tree.Kind))
	if err != nil {
		return nil, fmt.Errorf("starting the tree: %w", err)
	}
	s.root = pid
	<-s.up
	return s, nil
}

func missingConstructors(opts Options) error {
	var missing []string
	opts.Tree.Walk(func(path string, row *Row) {
		if _, ok := opts.Constructors[row.Kind]; !ok {
			missing = append(missing, path)
		}
	})
	if len(missing) > 0 {
		return fmt.Errorf("rows of the tree without a constructor: %s", strings.Join(missing, ", "))
	}
	return nil
}

// props are fresh for each spawn: middleware on shared props stacks up at every use.
func (s *System) props(c *cell) *actor.Props {
	mailbox := func() actor.Mailbox { return newSpawnMailbox(actor.Unbounded(&c.mailbox)()) }
	return actor.PropsFromProducer(func() actor.Actor { return c }, actor.WithMailbox(mailbox))
}

// topStrategy receives a failure of the root, which has no supervisor.
type topStrategy struct{ s *System }

// HandleFailure implements actor.SupervisorStrategy.
func (t topStrategy) HandleFailure(_ *actor.ActorSystem, _ actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics,
	reason any, _ any) {
	t.s.fail(fmt.Errorf("the root of the tree failed: %v", reason))
	t.s.as.Root.Stop(child)
}

func (s *System) fail(err error) { s.fatal.Do(func() { go s.opts.Fatal(err) }) }

func (s *System) onDeadLetter(e any) {
	dead, _ := e.(*actor.DeadLetterEvent)
	if dead == nil {
		return
	}
	if env, ours := dead.Message.(*envelope); ours {
		to := addressOf(dead.PID)
		s.deadLetters(s.kindAt(to), 1)
		s.logUndelivered(to, env, "message to an actor that is not there")
	}
}

// deadLetters counts messages that have no receiver.
func (s *System) deadLetters(of Kind, count uint64) {
	s.metrics.kinds[of].deadLetters.Add(float64(count))
}

// logUndelivered logs a message that has no receiver. Loss is allowed, so the level is debug.
func (s *System) logUndelivered(to messages.Address, env *envelope, why string) {
	s.log.Debug(why, "actor", to.String(), "from", env.from.String(), "message", typeName(env.msg))
}

func addressOf(pid *actor.PID) messages.Address {
	_, path, _ := strings.Cut(pid.Id, "/")
	return messages.Address(path)
}

func (s *System) pid(a messages.Address) *actor.PID {
	id := string(s.opts.Tree.Kind)
	if a != messages.Node {
		id += "/" + string(a)
	}
	return s.as.NewLocalPID(id)
}

func (s *System) post(to messages.Address, env *envelope) {
	s.as.Root.Send(s.pid(to), env)
}

// Tell sends a message into the tree from outside, and starts a flow.
func (s *System) Tell(to messages.Address, msg any) { s.tell(to, msg, nil) }

func (s *System) tell(to messages.Address, msg any, reply chan<- any) {
	id := s.seq.Add(1)
	s.post(to, &envelope{id: id, flow: Flow{}.next(id, to, msg), sent: s.clock.Now(), msg: msg, reply: reply})
}

// ErrNoAnswer names the actor that did not answer a question in time. A server answers it with 503.
type ErrNoAnswer struct {
	Actor    messages.Address
	Question string
	Err      error
}

func (e *ErrNoAnswer) Error() string {
	return fmt.Sprintf("no answer from actor %q to %s: %v", e.Actor.String(), e.Question, e.Err)
}

// Unwrap is the context's error.
func (e *ErrNoAnswer) Unwrap() error { return e.Err }

// Ask puts a question to an actor from outside the tree and waits for its answer until ctx ends; then the error is an
// *ErrNoAnswer. It must not be called on a mailbox.
func (s *System) Ask(ctx context.Context, to messages.Address, question any) (any, error) {
	answer := make(chan any, 1)
	s.tell(to, question, answer)
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return nil, &ErrNoAnswer{Actor: to, Question: typeName(question), Err: ctx.Err()}
	}
}

// Actors lists the addresses of all running actors, sorted.
func (s *System) Actors() []messages.Address {
	var out []messages.Address
	s.lives.Range(func(a, l any) bool {
		if l.(*life).runs() {
			out = append(out, a.(messages.Address))
		}
		return true
	})
	slices.Sort(out)
	return out
}

// Indispensable returns the enabled services whose loss ends the process. The tree is alive while they answer.
func (s *System) Indispensable() (out []messages.Address) {
	for _, row := range s.opts.Tree.Children {
		if !row.Dynamic && row.Strategy.Then == Escalate && s.opts.Constructors[row.Kind] != nil {
			out = append(out, messages.Address(row.Kind))
		}
	}
	return out
}

// KindOf is the kind of the actor at the address, or "" when none is known there.
func (s *System) KindOf(a messages.Address) Kind {
	v, _ := s.VitalsOf(a)
	return v.Kind
}

// Kill makes the actor panic at its next message, as a bug would. It is for chaos.
func (s *System) Kill(a messages.Address, reason string) { s.Tell(a, kill{reason}) }

type kill struct{ reason string }

// Nudge sends the actor a message that it has no part in: the interceptor sees one, though nothing happens. It is for chaos.
func (s *System) Nudge(a messages.Address) { s.Tell(a, nudge{}) }

type nudge struct{}

// Recorder is the flight recorder.
func (s *System) Recorder() *Recorder { return s.recorder }

// Shutdown drains the tree from the top down: every actor's workers are cancelled, no container is touched. When ctx
// ends first, the error names the actors that were still there.
func (s *System) Shutdown(ctx context.Context) error {
	s.as.Root.Stop(s.root)
	select {
	case <-s.ended:
	case <-ctx.Done():
		return s.late(ctx.Err())
	}
	s.as.Shutdown()
	return nil
}

func (s *System) late(cause error) error {
	var names []string
	for _, a := range s.Actors() {
		names = append(names, a.String())
	}
	if len(names) == 0 {
		return cause
	}
	return errors.Join(fmt.Errorf("actors that did not stop in time: %s", strings.Join(names, ", ")), cause)
}

// workersGrace bounds how long a stopped actor waits for its workers to notice.
const workersGrace = 2 * time.Second
