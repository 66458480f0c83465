// Package url is the actor for the pods of the manifest at a URL.
//
// The URL is requested at intervals, conditionally after the first answer. An answer that is good as a whole becomes the
// desired state. Any other answer, a failing server or a manifest with a problem, is reported and leaves the last good answer
// in force. That one is also kept on disk. The kubelet does the same, except for the conditions, the limit of the body, and
// the disk. Header values, which are usually credentials, are in the request and nowhere else.
//
// An empty list means no pods. An empty answer may come from a proxy or from a server that is not ready, and ends no pod; it ends
// all in the kubelet. Ten redirects are followed. The configured headers go to the URL's own scheme, host and port only; the
// kubelet sends most of them on.
package url

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configures the actor.
type Options struct {
	// URL is the manifest's address (staticPodURL).
	URL string
	// Header is sent with each request (staticPodURLHeader), to the URL's own scheme, host and port alone.
	Header http.Header
	// CheckFrequency is the time between two requests (httpCheckFrequency). It is 20 s if not positive, as in the kubelet.
	CheckFrequency time.Duration
	// StateDir is a folder for this actor alone, e.g. <root-dir>/playlet/http-source. If empty, the last good answer does not
	// survive the agent.
	StateDir string
	Node     base.Node
	// Board is where the pods actor publishes. It shows which departed pods have ended. nil: none is dropped.
	Board *board.Board
	// Transport carries the requests; nil: Go's default transport, including the proxies of the environment.
	Transport http.RoundTripper
}

const (
	defaultCheckFrequency = 20 * time.Second
	// requestTimeout bounds one request with its redirects and its body. It is the kubelet's value.
	requestTimeout = 10 * time.Second
)

// New returns the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = defaultCheckFrequency
	}
	f := newFetcher(opts)
	return func(string) supervisors.Actor {
		return &source{opts: opts, fetcher: f, checkpoint: base.NewCheckpoint(opts.StateDir,
			"the last good pods of the manifest URL")}
	}
}

// source is the actor.
type source struct {
	opts       Options
	fetcher    *fetcher
	state      state
	desired    base.DesiredState
	departed   base.Departures // pods that left the manifest
	loaded     bool            // the checkpoint has been read; requests may start
	asking     bool
	checkpoint base.Checkpoint
}

type (
	checkDue         struct{}
	checkpointLoaded struct {
		good *lastGood
		err  error
	}
)

func (s *source) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		s.load(ctx)
		ctx.After(s.opts.CheckFrequency, checkDue{})
	case checkpointLoaded:
		s.onLoaded(ctx, m)
	case checkDue:
		ctx.After(s.opts.CheckFrequency, checkDue{})
		s.ask(ctx)
		if s.departed.Prune(ctx.Now(), s.opts.Board, messages.URL) {
			s.save(ctx)
		}
		s.checkpoint.Retry(ctx)
	case fetchResult:
		s.onFetched(ctx, m)
	case messages.ResendDesired:
		s.desired.Send(ctx)
	default:
		if !s.checkpoint.Receive(ctx, msg) {
			ctx.Unhandled(msg)
		}
	}
}

func (s *source) load(ctx supervisors.Context) {
	opts := s.opts
	ctx.Do(supervisors.Work{Name: "ReadLastGood", Timeout: base.DiskTimeout, Run: func(context.Context) any {
		good, err := load(opts)
		return checkpointLoaded{good, err}
	}})
}

func (s *source) onLoaded(ctx supervisors.Context, m checkpointLoaded) {
	if m.err != nil {
		ctx.Log().Error("the last valid pods of the manifest URL are lost", "error", m.err)
	}
	s.loaded = true
	if m.good != nil {
		s.departed.Add(ctx.Now(), m.good.Gone...)
		s.take(state{loaded: true, pods: m.good.Pods, validators: m.good.Validators, warnings: m.good.Warnings,
			problems: m.good.Warnings})
		s.desired.Send(ctx)
	}
	s.ask(ctx)
}

func (s *source) take(next state) {
	s.state = next
	s.desired.Known, s.desired.Pods, s.desired.Problems = next.loaded, next.pods, next.problems
	s.desired.Unread, s.desired.Stale, s.desired.Gone = nil, nil, s.departed.UIDs()
	if faults, _ := base.Split(next.problems); len(faults) > 0 || !next.confirmed {
		s.desired.Unread, s.desired.Stale = []string{s.fetcher.shown}, map[string]bool{}
		for _, p := range next.pods {
			s.desired.Stale[string(p.UID)] = true
		}
	}
}

// ask sends a request, unless one is in progress.
func (s *source) ask(ctx supervisors.Context) {
	if s.asking || !s.loaded {
		return
	}
	s.asking = true
	f, v, now := s.fetcher, s.state.validators, ctx.Now()
	ctx.Do(supervisors.Work{Name: "GetManifest", Timeout: requestTimeout, Run: func(ctx context.Context) any {
		return f.fetch(ctx, v, now)
	}})
}

func (s *source) onFetched(ctx supervisors.Context, m fetchResult) {
	s.asking = false
	next, changed := s.state.after(m, s.fetcher.shown)
	departed := s.departed.Update(ctx.Now(), base.UIDs(s.state.pods), base.UIDs(next.pods))
	s.take(next)
	s.desired.Log(ctx, "manifest problem", "the manifest URL gives a good manifest again")
	s.desired.Send(ctx)
	if changed || departed {
		s.save(ctx)
	}
}

// save writes the last good answer and the departed pods to disk.
func (s *source) save(ctx supervisors.Context) {
	s.checkpoint.Set(ctx, &lastGood{URL: s.opts.URL, NodeName: s.opts.Node.NodeName, Pods: s.state.pods,
		Validators: s.state.validators, Warnings: s.state.warnings, Gone: slices.Sorted(maps.Keys(s.departed.UIDs()))})
}

// Inspection describes the actor's state.
type Inspection struct {
	URL string `json:"url"` // without secrets
	base.Inspection
	AskedAt time.Time `json:"askedAt,omitzero"` // when the last answered request was sent
	Answer  string    `json:"answer,omitempty"` // its HTTP status
}

func (s *source) Inspect() any {
	return Inspection{URL: s.fetcher.shown, Inspection: s.desired.Inspect(), AskedAt: s.state.askedAt, Answer: s.state.answer}
}
