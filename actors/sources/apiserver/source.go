// Package apiserver is the actor that has the pods which the API server assigns to this node.
//
// An object whose spec, labels, annotations, deletion and readiness conditions did not change keeps its pointer, so that
// the statuses which the agent writes itself change nothing. A pod with a deletionTimestamp is sent as one that ends, with
// the grace period of the object, also when that gets shorter.
//
// The watch is a reflector of client-go (watch-list, protobuf) and belongs to the process. The first list is never one
// from a cache of unknown age, which could lack pods that run here. Until the first list, pods that are found running are left
// as they are. After a restored backup the watch brings nothing until its resource version is reached again: the agent is
// to be restarted then, as a kubelet is.
package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	Feed *Feed
	// Server is the API server's address, for people.
	Server string
}

const (
	// checkEvery is how long nothing has to happen until all is told again.
	checkEvery = 30 * time.Second
	// slack is what a worker has to return in after that.
	slack = 10 * time.Second
)

// New makes the constructor of the actor of the kind "apiserver": it waits for what the feed has, and tells it on.
func New(opts Options) supervisors.Constructor {
	return func(string) supervisors.Actor { return &source{opts: opts} }
}

// source is the actor.
type source struct {
	opts    Options
	view    View
	desired base.Desired // as it was sent last,
	sent    time.Time    // and when
}

// seen is one look at the feed.
type seen struct{ view View }

// Routine implements messages.Routine: what follows from it is told, and recorded there.
func (seen) Routine() {}

func (s *source) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		s.wait(ctx)
	case seen:
		s.look(ctx, m.view)
		s.wait(ctx)
	case messages.ResendDesired:
		s.send(ctx)
	case messages.ServiceStarted: // status has forgotten what is there
		s.sendServed(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

// wait waits for what is newer than what is known.
func (s *source) wait(ctx supervisors.Context) {
	feed, after := s.opts.Feed, s.view.Version
	ctx.Do(supervisors.Work{Name: "WatchPods", Timeout: checkEvery + slack, Run: func(c context.Context) any {
		c, cancel := context.WithTimeout(c, checkEvery)
		defer cancel()
		m := seen{feed.Wait(c, after)}
		supervisors.Awaited(c)
		return m
	}})
}

// look takes what is known. Where nothing was told for a while, all is told again.
func (s *source) look(ctx supervisors.Context, now View) {
	was := s.view
	s.view = now
	// The last word may have been lost, and where others' changes keep coming it is never quiet.
	again := now.Version == was.Version || !ctx.Now().Before(s.sent.Add(checkEvery))
	if again || now.Heard != was.Heard || now.Problem != was.Problem ||
		!slices.Equal(now.Wanted, s.desired.Pods) || !slices.Equal(now.Odd, was.Odd) {
		s.send(ctx)
	}
	s.sendServed(ctx)
}

// sendServed tells status what the API server has.
func (s *source) sendServed(ctx supervisors.Context) {
	if s.view.Heard {
		ctx.Tell(messages.Status, messages.APIPodsObserved{Pods: s.view.Served, At: s.view.At})
	}
}

// send sends pods what is wanted, or what keeps that from being known.
func (s *source) send(ctx supervisors.Context) {
	s.desired.Known, s.desired.Pods, s.desired.Problems = s.view.Heard, s.view.Wanted, s.problems()
	s.desired.Log(ctx, "pods of the API server", "the API server answers again")
	s.desired.Send(ctx)
	s.sent = ctx.Now()
}

func (s *source) problems() []messages.ManifestProblem {
	var out []messages.ManifestProblem
	if s.view.Problem != "" {
		out = append(out, messages.ManifestProblem{
			Path: s.opts.Server,
			Message: fmt.Sprintf("since %s the pods of this node cannot be read: %s",
				s.view.Since.UTC().Format(time.RFC3339), s.view.Problem),
			KeptLast: len(s.view.Wanted) > 0,
		})
	}
	for _, odd := range s.view.Odd {
		out = append(out, messages.ManifestProblem{Path: s.opts.Server, Message: odd})
	}
	return out
}

// Inspection is what the actor says of itself.
type Inspection struct {
	Server  string    `json:"server"`
	Heard   bool      `json:"heard"` // whether there was a whole list
	Served  int       `json:"served"`
	Wanted  int       `json:"wanted"`
	At      time.Time `json:"at,omitzero"` // when the API server was last known to agree
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

func (s *source) Inspect() any {
	v := s.view
	return Inspection{
		Server: s.opts.Server, Heard: v.Heard, Served: len(v.Served), Wanted: len(v.Wanted), At: v.At, Problem: v.Problem,
		Since: v.Since,
	}
}

// Clients are the clients towards the API server, which outlive every actor.
type Clients = apiclient.Clients

// ClientOptions are what the configuration says of traffic to the API server.
type ClientOptions = apiclient.Options

// Dial makes the clients; nothing is sent.
func Dial(o ClientOptions) (*Clients, error) { return apiclient.New(o) }
