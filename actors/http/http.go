// Package http is the actor that wants the pods of the manifest at a URL.
//
// The URL is asked every so often, conditionally once it has answered. An answer that is good as a whole is the new
// wish. Anything else, a server that fails or a manifest with a problem, is reported and leaves the last good wish in
// force; that is kept on disk too. It is what the kubelet does, but for the conditions, the limit of the body, and the
// disk. Header values, which are usually credentials, are in the request and nowhere else.
package http

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/problemlog"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	// URL is where the manifest is (staticPodURL).
	URL string
	// Header is sent with each request (staticPodURLHeader), to the URL's own scheme, host and port alone.
	Header http.Header
	// CheckFrequency is the time between two requests (httpCheckFrequency); 20 s when it is not positive, as the kubelet
	// has it.
	CheckFrequency time.Duration
	// StateDir is a folder for this actor alone, e.g. <root-dir>/playlet/http-source. When empty, the last good wish does
	// not survive the agent.
	StateDir string
	NodeName string
	// Objects says that the node has ConfigMaps, Secrets and RuntimeClasses of its own, so that pods may refer to them.
	Objects bool
	// Cluster says that it has an API server, to whose RuntimeClasses they may refer.
	Cluster bool
	// Transport carries the requests; nil: as Go's own does, proxies of the environment included.
	Transport http.RoundTripper
}

const (
	defaultCheckFrequency = 20 * time.Second
	// requestTimeout bounds one request with its redirects and its body; it is the kubelet's.
	requestTimeout = 10 * time.Second
	diskTimeout    = 30 * time.Second
)

// New makes the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	if opts.CheckFrequency <= 0 {
		opts.CheckFrequency = defaultCheckFrequency
	}
	f := newFetcher(opts)
	return func(string) supervisors.Actor { return &source{opts: opts, fetcher: f} }
}

// source is the actor.
type source struct {
	opts    Options
	fetcher *fetcher
	state   state
	loaded  bool // what is on disk has been read, so that it can be asked what is new
	asking  bool
	saving  bool
	unsaved bool
	logged  problemlog.Log
}

type (
	checkDue struct{}
	loaded   struct {
		good *lastGood
		err  error
	}
	saved struct{ err error }
)

// Receive implements supervisors.Actor.
func (s *source) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		s.load(ctx)
		ctx.After(s.opts.CheckFrequency, checkDue{})
	case loaded:
		s.onLoaded(ctx, m)
	case checkDue:
		ctx.After(s.opts.CheckFrequency, checkDue{})
		s.ask(ctx)
		s.save(ctx)
	case fetched:
		s.onFetched(ctx, m)
	case saved:
		s.onSaved(ctx, m)
	case messages.TellWish:
		s.tell(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

func (s *source) load(ctx supervisors.Context) {
	opts := s.opts
	ctx.Do(supervisors.Work{Name: "ReadLastGood", Timeout: diskTimeout, Run: func(context.Context) any {
		good, err := load(opts)
		return loaded{good, err}
	}})
}

func (s *source) onLoaded(ctx supervisors.Context, m loaded) {
	if m.err != nil {
		ctx.Log().Error("the last good pods of the manifest URL are lost", "reason", m.err)
	}
	s.loaded = true
	if m.good != nil {
		s.state = state{heard: true, pods: m.good.Pods, validators: m.good.Validators}
		s.tell(ctx)
	}
	s.ask(ctx)
}

// ask sends a request, unless one is under way.
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

func (s *source) onFetched(ctx supervisors.Context, m fetched) {
	s.asking = false
	next, changed := s.state.after(m, s.fetcher.shown)
	s.state = next
	s.unsaved = s.unsaved || changed
	s.log(ctx)
	s.tell(ctx)
	s.save(ctx)
}

// tell tells pods what is wanted, or what keeps that from being known.
func (s *source) tell(ctx supervisors.Context) {
	if s.state.heard || len(s.state.problems) > 0 {
		ctx.Tell(messages.Pods, messages.SourcePodsWanted{
			Source: ctx.Self(), Pods: s.state.pods, Problems: s.state.problems, Unknown: !s.state.heard,
		})
	}
}

// log tells of problems that were not there before, and of their end.
func (s *source) log(ctx supervisors.Context) {
	if s.logged.Tell(ctx.Log(), "manifest problem", s.state.problems) && !s.logged.Any() {
		ctx.Log().Info("the manifest URL gives a good manifest again")
	}
}

// save keeps the wish on disk, one writing at a time.
func (s *source) save(ctx supervisors.Context) {
	if !s.unsaved || s.saving || s.opts.StateDir == "" {
		return
	}
	s.saving, s.unsaved = true, false
	dir := s.opts.StateDir
	good := &lastGood{URL: s.opts.URL, NodeName: s.opts.NodeName, Pods: s.state.pods, Validators: s.state.validators}
	ctx.Do(supervisors.Work{Name: "SaveLastGood", Timeout: diskTimeout, Run: func(context.Context) any {
		return saved{save(dir, good)}
	}})
}

func (s *source) onSaved(ctx supervisors.Context, m saved) {
	s.saving = false
	if m.err != nil {
		ctx.Log().Error("the last good pods of the manifest URL cannot be kept on disk; they are lost if the agent stops now", "reason", m.err)
		s.unsaved = true // the next check tries again
		return
	}
	s.save(ctx)
}

// Inspection is what the actor says of itself.
type Inspection struct {
	URL      string                     `json:"url"`   // without what may be secret in it
	Heard    bool                       `json:"heard"` // whether it is known what is wanted
	Pods     []string                   `json:"pods"`
	Problems []messages.ManifestProblem `json:"problems,omitempty"`
	AskedAt  time.Time                  `json:"askedAt,omitzero"` // when the request was sent that was answered last
	Answer   string                     `json:"answer,omitempty"` // the HTTP status of it
}

// Inspect implements supervisors.Inspectable.
func (s *source) Inspect() any {
	in := Inspection{
		URL: s.fetcher.shown, Heard: s.state.heard, Problems: slices.Clone(s.state.problems), Pods: []string{},
		AskedAt: s.state.askedAt, Answer: s.state.answer,
	}
	for _, p := range s.state.pods {
		in.Pods = append(in.Pods, p.Namespace+"/"+p.Name)
	}
	return in
}
