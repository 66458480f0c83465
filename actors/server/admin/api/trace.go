package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/playlet-dev/playlet/supervisors"
)

// TraceOptions choose what is read of the flight recorder: all of it, that of a pod, or that of an actor.
type TraceOptions struct {
	Pod, Namespace string // its name or UID; in any namespace where that is empty
	Actor          string // its path
	Since          time.Time
	Follow         bool // go on until the client goes
}

// Trace answers GET /v1/trace; with follow, each line is one, and has what is new.
type Trace struct {
	Pod      *Ref                     `json:"pod,omitempty"`   // where it was chosen, and is there
	Actor    string                   `json:"actor,omitempty"` // where it was chosen
	Entries  []supervisors.Entry      `json:"entries"`         // oldest first
	Recorder supervisors.RecorderSize `json:"recorder"`
}

// Query is the form in which the options are sent.
func (o TraceOptions) Query() string {
	q := url.Values{}
	for name, text := range map[string]string{"pod": o.Pod, "namespace": o.Namespace, "actor": o.Actor} {
		if text != "" {
			q.Set(name, text)
		}
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	return q.Encode()
}

// ParseTraceOptions reads what Query wrote. The error names the parameter.
func ParseTraceOptions(q url.Values) (TraceOptions, error) {
	o := TraceOptions{}
	for name, values := range q {
		text := values[len(values)-1]
		var err error
		switch name {
		case "pod":
			o.Pod = text
		case "namespace":
			o.Namespace = text
		case "actor":
			o.Actor = text
		case "since":
			o.Since, err = time.Parse(time.RFC3339Nano, text)
		case "follow":
			o.Follow, err = strconv.ParseBool(text)
		default:
			return o, fmt.Errorf("unknown parameter %q", name)
		}
		if err != nil {
			return o, fmt.Errorf("%s=%q: %w", name, text, err)
		}
	}
	if o.Pod != "" && o.Actor != "" {
		return o, errors.New("either a pod or an actor can be chosen")
	}
	return o, nil
}

// Trace calls f with what the flight recorder has, and, where it follows, with each addition, until ctx ends (nil is
// returned), f returns an error (which is returned), or the agent ends the stream (ErrStreamEnded).
func (c *Client) Trace(ctx context.Context, o TraceOptions, f func(*Trace) error) error {
	if !o.Follow {
		t, err := get[Trace](ctx, c, "/v1/trace", o.Query())
		if err != nil {
			return err
		}
		return f(t)
	}
	return stream(ctx, c, "/v1/trace", o.Query(), f)
}

// stream calls f with each line of an answer.
func stream[T any](ctx context.Context, c *Client, path, query string, f func(*T) error) error {
	body, err := c.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // only read from
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
