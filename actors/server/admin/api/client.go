package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/endpoint"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
)

const (
	callTimeout = 15 * time.Second // longer than askTimeout of the agent
	dialTimeout = 5 * time.Second
	maxAnswer   = 256 << 20 // bytes; a thousand big pods stay far below
	maxError    = 64 << 10
)

// ErrNotRunning is what errors of a client are when no agent listens on the socket.
var ErrNotRunning = errors.New("playlet is not running")

// ErrStreamEnded is what Watch returns when the agent has ended the stream: it stops, or was killed.
var ErrStreamEnded = errors.New("the agent has ended the stream")

// Client speaks to the agent behind one admin socket. It keeps no connection between calls; safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient is a client of the agent that listens on the socket. It does not connect yet.
func NewClient(socket string) *Client {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, ResponseHeaderTimeout: callTimeout,
	}}}
}

// Filter chooses pods; an empty field chooses all.
type Filter struct{ Namespace, Name string }

func (f Filter) query(watch bool) string {
	q := url.Values{}
	if f.Namespace != "" {
		q.Set("namespace", f.Namespace)
	}
	if f.Name != "" {
		q.Set("name", f.Name)
	}
	if watch {
		q.Set("watch", "true")
	}
	return q.Encode()
}

// Pods is what the agent knows of the chosen pods now.
func (c *Client) Pods(ctx context.Context, f Filter) (*Pods, error) {
	return get[Pods](ctx, c, "/v1/pods", f.query(false))
}

// Explain says why the pods of this name are in the state that they are in, in any namespace where that is empty; with an empty
// name, it explains the node.
func (c *Client) Explain(ctx context.Context, f Filter) (*Explanations, error) {
	if f.Name == "" {
		return get[Explanations](ctx, c, "/v1/explain/node", "")
	}
	return get[Explanations](ctx, c, "/v1/explain/pod/"+f.Name, Filter{Namespace: f.Namespace}.query(false))
}

// Events are the last ones of this node, about the object of that name or all.
func (c *Client) Events(ctx context.Context, f Filter) (*Events, error) {
	return get[Events](ctx, c, "/v1/events", f.query(false))
}

// WatchEvents is as Watch, with events.
func (c *Client) WatchEvents(ctx context.Context, filter Filter, f func(*Events) error) error {
	return stream(ctx, c, "/v1/events", filter.query(true), f)
}

// Version is the agent's.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	return get[Version](ctx, c, "/v1/version", "")
}

// Inspect asks the actor at the path what it is doing.
func (c *Client) Inspect(ctx context.Context, actor messages.Address) (*Inspection, error) {
	return get[Inspection](ctx, c, "/v1/actors/"+string(actor), "")
}

// Observatory says where the observatory is served beside the admin socket.
func (c *Client) Observatory(ctx context.Context) (*Observatory, error) {
	return get[Observatory](ctx, c, "/v1/observatory", "")
}

// Actors lists the actors.
func (c *Client) Actors(ctx context.Context) (*Actors, error) {
	return get[Actors](ctx, c, "/v1/actors", "")
}

// Figures are the CPU and the memory of the node and its pods.
func (c *Client) Figures(ctx context.Context) (*Figures, error) {
	return get[Figures](ctx, c, "/v1/figures", "")
}

// Watch calls f with the chosen pods as they are, and then with each change, until ctx ends (nil is returned), f
// returns an error (which is returned), or the agent ends the stream (ErrStreamEnded).
func (c *Client) Watch(ctx context.Context, filter Filter, f func(*Change) error) error {
	return stream(ctx, c, "/v1/pods", filter.query(true), f)
}

func get[T any](ctx context.Context, c *Client, path, query string) (*T, error) {
	return call[T](ctx, c, http.MethodGet, path, query, nil)
}

func call[T any](ctx context.Context, c *Client, method, path, query string, send []byte) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := c.request(ctx, method, path, query, send)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // only read from
	out := new(T)
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return nil, fmt.Errorf("the agent's answer to %s: %w", path, err)
	}
	return out, nil
}

// request sends a request, with a body unless send is nil, and returns the body of a good answer.
func (c *Client) request(ctx context.Context, method, path, query string, send []byte) (io.ReadCloser, error) {
	body, _, err := c.open(ctx, method, path, query, send)
	return body, err
}

// open is request, with the answer's header.
func (c *Client) open(ctx context.Context, method, path, query string, send []byte) (io.ReadCloser, http.Header, error) {
	u := url.URL{Scheme: "http", Host: "playlet", Path: path, RawQuery: query}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(send))
	if err != nil {
		return nil, nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusCreated {
		return resp.Body, resp.Header, nil
	}
	return nil, nil, refusalOf(resp)
}

// refusalOf is the error that an answer is.
func refusalOf(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		return fmt.Errorf("the agent answered %s, and then: %w", resp.Status, err)
	}
	failed := &Error{}
	if json.Unmarshal(text, failed) != nil || failed.Text == "" {
		return &Error{Status: resp.StatusCode, Text: strings.TrimSpace(resp.Status + " " + string(text))}
	}
	return failed
}

// explain says what a failed connection means to the person who typed the command.
func (c *Client) explain(err error) error {
	const advice = `start it with "playlet", or name its socket with --admin-socket or PLAYLET_SOCKET`
	var u *url.Error
	if errors.As(err, &u) { // its URL is of our making and tells nobody anything
		err = u.Err
	}
	err = endpoint.Plain(err)
	switch info, statErr := os.Stat(c.socket); {
	case len(c.socket) > config.MaxSocketPath:
		return fmt.Errorf("%w (%s is too long for a unix socket, whose path may have %d bytes): %s", ErrNotRunning, c.socket,
			config.MaxSocketPath, advice)
	case statErr == nil && info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%w (%s is no socket): %s", ErrNotRunning, c.socket, advice)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w (no socket at %s): %s", ErrNotRunning, c.socket, advice)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (nobody listens on %s any more): %s", ErrNotRunning, c.socket, advice)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to open %s: root may ask the agent, and the group of its flag --admin-socket-group",
			c.socket)
	default:
		return fmt.Errorf("asking the agent on %s: %w", c.socket, err)
	}
}
