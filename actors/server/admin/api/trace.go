package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/playlet-dev/playlet/supervisors"
)

// TraceOptions select a part of the flight recorder: all, one pod, or one actor.
type TraceOptions struct {
	Pod, Namespace string // its name or UID; an empty namespace means any
	Actor          string // its path
	Since          time.Time
	Follow         bool // continue until the client leaves
}

// Trace answers GET /v1/trace; with follow, each line is a Trace with new entries.
type Trace struct {
	Pod      *Ref                     `json:"pod,omitempty"`   // if it was selected and exists
	Actor    string                   `json:"actor,omitempty"` // if it was selected
	Entries  []supervisors.Entry      `json:"entries"`         // oldest first
	Recorder supervisors.RecorderSize `json:"recorder"`
}

// Params returns the parameters of a request.
func (o *TraceOptions) Params() Params {
	return Params{"pod": &o.Pod, "namespace": &o.Namespace, "actor": &o.Actor, "since": &o.Since, "follow": &o.Follow}
}

// Trace calls f with the content of the flight recorder, and, with Follow, with each addition, until ctx ends (nil is returned),
// f returns an error (which is returned), or the agent ends the stream (ErrStreamEnded).
func (c *Client) Trace(ctx context.Context, o TraceOptions, f func(*Trace) error) error {
	if !o.Follow {
		t, err := get[Trace](ctx, c, "/v1/trace", o.Params().Encode())
		if err != nil {
			return err
		}
		return f(t)
	}
	return stream(ctx, c, "/v1/trace", o.Params().Encode(), f)
}

// stream calls f with each line of an answer.
func stream[T any](ctx context.Context, c *Client, path, query string, f func(*T) error) error {
	body, _, err := c.open(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // read-only
	lines := json.NewDecoder(body)
	for {
		line := new(T)
		if err := lines.Decode(line); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return ErrStreamEnded
		}
		if err := f(line); err != nil {
			return err
		}
	}
}
