// Package apiserver is the actor for the pods that the API server assigns to this node.
//
// An object keeps its pointer if its spec, labels, annotations, deletion and readiness conditions are unchanged. The statuses
// that the agent itself writes therefore change nothing. A pod with a deletionTimestamp is sent as ending, with the object's
// grace period, also when that is shortened.
//
// The watch is a client-go reflector (watch-list, protobuf) and belongs to the process. The first list is never one from a
// cache of unknown age, which could lack pods that run here. Until the first list, pods that already run are left alone.
// After a restored backup, the watch delivers nothing until its resource version is reached again. The agent must be
// restarted then, as must a kubelet.
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

// Options configures the actor.
type Options struct {
	Feed *Feed
	// Server is the API server's address, for display.
	Server string
}

const (
	// checkEvery is the time without a change after which the full state is sent again.
	checkEvery = 30 * time.Second
	// slack is the worker's time to return after that.
	slack = 10 * time.Second
)

// New returns the constructor of the actor "apiserver". It waits for the feed's changes and sends them on.
func New(opts Options) supervisors.Constructor {
	return func(string) supervisors.Actor { return &source{opts: opts} }
}

// source is the actor.
type source struct {
	opts    Options
	view    View
	desired base.DesiredState // as last sent
	sent    time.Time         // when desired was last sent
}

// viewReceived is one view of the feed.
type viewReceived struct{ view View }

// Routine implements messages.Routine: the messages that follow from it are recorded instead.
func (viewReceived) Routine() {}

func (s *source) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		s.wait(ctx)
	case viewReceived:
		s.look(ctx, m.view)
		s.wait(ctx)
	case messages.ResendDesired:
		s.send(ctx)
	case messages.ServiceStarted: // the status actor lost its list in a restart
		s.sendServed(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

// wait waits for a newer view.
func (s *source) wait(ctx supervisors.Context) {
	feed, after := s.opts.Feed, s.view.Version
	ctx.Do(supervisors.Work{Name: "WatchPods", Timeout: checkEvery + slack, Run: func(c context.Context) any {
		c, cancel := context.WithTimeout(c, checkEvery)
		defer cancel()
		m := viewReceived{feed.Wait(c, after)}
		supervisors.Awaited(c)
		return m
	}})
}

// look handles a view. After some time without a message it sends everything again.
func (s *source) look(ctx supervisors.Context, now View) {
	was := s.view
	s.view = now
	// The last message may have been lost. Other clients' changes may also keep the feed busy all the time.
	again := now.Version == was.Version || !ctx.Now().Before(s.sent.Add(checkEvery))
	if again || now.Heard != was.Heard || now.Problem != was.Problem ||
		!slices.Equal(now.Wanted, s.desired.Pods) || !slices.Equal(now.Odd, was.Odd) {
		s.send(ctx)
	}
	s.sendServed(ctx)
}

// sendServed sends the API server's pods to the status actor.
func (s *source) sendServed(ctx supervisors.Context) {
	if s.view.Heard {
		ctx.Tell(messages.Status, messages.APIPodsObserved{Pods: s.view.Served, At: s.view.At})
	}
}

// send sends the desired pods, or the problems that keep them unknown, to the pods actor.
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

// Inspection describes the actor's state.
type Inspection struct {
	Server  string    `json:"server"`
	Heard   bool      `json:"heard"` // whether a complete list was received
	Served  int       `json:"served"`
	Wanted  int       `json:"wanted"`
	At      time.Time `json:"at,omitzero"` // when the API server last confirmed the view
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

// Clients are the clients of the API server, which outlive every actor.
type Clients = apiclient.Clients

// ClientOptions configure the traffic to the API server.
type ClientOptions = apiclient.Options

// Dial creates the clients without sending a request.
func Dial(o ClientOptions) (*Clients, error) { return apiclient.New(o) }
