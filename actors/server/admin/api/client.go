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
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/endpoint"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const (
	callTimeout = 15 * time.Second // longer than askTimeout of the agent
	dialTimeout = 5 * time.Second
	maxAnswer   = 256 << 20 // bytes; a thousand big pods stay far below
	maxError    = 64 << 10

	images, submissions, chaosPath = "/v1/images", "/v1/submissions", "/v1/chaos"
)

// ErrNotRunning is wrapped by errors of a client if no agent listens on the socket.
var ErrNotRunning = errors.New("playlet is not running")

// ErrStreamEnded is returned by Watch when the agent has ended the stream: it stops, or was killed.
var ErrStreamEnded = errors.New("the agent has ended the stream")

// Client speaks to the agent behind one admin socket. It keeps no connection between calls; safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
	// agent is the PID of the process behind the last connection, by SO_PEERCRED of unix(7). It is 0 if the process is in a PID
	// namespace that this process cannot see.
	agent atomic.Int32
}

// NewClient returns a client of the agent on the socket. It does not connect yet.
func NewClient(socket string) *Client {
	dialer := net.Dialer{Timeout: dialTimeout}
	c := &Client{socket: socket}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "unix", socket)
			if err == nil {
				c.agent.Store(peer(conn))
			}
			return conn, err
		},
		DisableKeepAlives: true, ResponseHeaderTimeout: callTimeout,
	}}
	return c
}

// peer returns the PID of the process that listens for conn; 0 if it is unknown.
func peer(conn net.Conn) int32 {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	var pid int32
	_ = raw.Control(func(fd uintptr) { // an unknown PID is 0
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = cred.Pid
		}
	})
	return pid
}

// Filter selects pods; an empty field selects all.
type Filter struct{ Namespace, Name string }

func (f Filter) query(watch bool) string {
	return Params{"namespace": &f.Namespace, "name": &f.Name, "watch": &watch}.Encode()
}

// Pods returns the current state of the selected pods.
func (c *Client) Pods(ctx context.Context, f Filter) (*Pods, error) {
	return get[Pods](ctx, c, "/v1/pods", f.query(false))
}

// Explain explains the state of the pods of this name, in all namespaces if the namespace is empty; with an empty name, it
// explains the node.
func (c *Client) Explain(ctx context.Context, f Filter) (*Explanations, error) {
	if f.Name == "" {
		return get[Explanations](ctx, c, "/v1/explain/node", "")
	}
	return get[Explanations](ctx, c, "/v1/explain/pod/"+f.Name, Filter{Namespace: f.Namespace}.query(false))
}

// Events returns the last events of this node, about the object of that name or all, the newest last.
func (c *Client) Events(ctx context.Context, f Filter) (*v1.EventList, error) {
	return get[v1.EventList](ctx, c, "/v1/events", f.query(false))
}

// WatchEvents is Watch for events: each line has the new or repeated ones.
func (c *Client) WatchEvents(ctx context.Context, filter Filter, f func(*v1.EventList) error) error {
	return stream(ctx, c, "/v1/events", filter.query(true), f)
}

// Version returns the agent's version. Its PID is the one by which this process knows the agent, or 0. An agent in another PID
// namespace reports a PID that belongs to another process here.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	v, err := get[Version](ctx, c, "/v1/version", "")
	if err == nil {
		v.PID = int(c.agent.Load())
	}
	return v, err
}

// Inspect returns the inspection of the actor at the path.
func (c *Client) Inspect(ctx context.Context, actor messages.Address) (*Inspection, error) {
	return get[Inspection](ctx, c, "/v1/actors/"+string(actor), "")
}

// Observatory returns the address of the observatory's port.
func (c *Client) Observatory(ctx context.Context) (*Observatory, error) {
	return get[Observatory](ctx, c, "/v1/observatory", "")
}

// Actors lists the actors.
func (c *Client) Actors(ctx context.Context) (*Actors, error) {
	return get[Actors](ctx, c, "/v1/actors", "")
}

// Figures returns CPU and memory of the node and its pods.
func (c *Client) Figures(ctx context.Context) (*Figures, error) {
	return get[Figures](ctx, c, "/v1/figures", "")
}

// Watch calls f with the current state of the selected pods, and then with each change, until ctx ends (nil is returned), f
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
	body, _, err := c.open(ctx, method, path, query, send)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // read-only
	out := new(T)
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return nil, fmt.Errorf("the agent's answer to %s: %w", path, err)
	}
	return out, nil
}

// open sends a request, with a body unless send is nil, and returns the body and the header of a successful answer.
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

// refusalOf returns the error in an answer.
func refusalOf(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }() // read-only
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

// explain turns a failed connection into advice for the user of the command.
func (c *Client) explain(err error) error {
	const advice = `start it with "playlet", or name its socket with --admin-socket or PLAYLET_SOCKET`
	var u *url.Error
	if errors.As(err, &u) { // its URL is internal and no help
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
		return permissionError{c.socket}
	default:
		return fmt.Errorf("asking the agent on %s: %w", c.socket, err)
	}
}

// permissionError is the error of a socket that this user may not open.
type permissionError struct{ socket string }

// Error implements error.
func (e permissionError) Error() string {
	return "no permission to open " + e.socket + ": root may ask the agent, and the group of its flag --admin-socket-group"
}

// Unwrap returns [fs.ErrPermission].
func (permissionError) Unwrap() error { return fs.ErrPermission }

// Images lists the images on the node.
func (c *Client) Images(ctx context.Context) (*Images, error) { return get[Images](ctx, c, images, "") }

// RemoveImage removes the image with that ID, unless it is in use or, with collect, a rule of the image collection keeps it. It
// may be repeated.
func (c *Client) RemoveImage(ctx context.Context, id string, collect bool) (*messages.ImageRemoved, error) {
	query := Params{"collect": &collect}.Encode()
	return call[messages.ImageRemoved](ctx, c, http.MethodDelete, images+"/"+id, query, nil)
}

// PullImage starts or continues the pull of an image, and returns its progress. It is repeated until the pull has ended, with an
// id for this one pull.
func (c *Client) PullImage(ctx context.Context, id, image string) (*messages.ImageFetched, error) {
	q := url.Values{"id": {id}, "image": {image}}
	return call[messages.ImageFetched](ctx, c, http.MethodPost, images, q.Encode(), nil)
}

// Submit submits the pods of a manifest. With replace it replaces earlier submissions of the same names; without it, a different
// version is an error. A rejection is an *Error with the problems. After any other error it is unknown whether the pods were
// accepted; sending the same again is safe.
func (c *Client) Submit(ctx context.Context, manifest []byte, replace bool) (*SubmitReply, error) {
	return call[SubmitReply](ctx, c, http.MethodPost, submissions, Params{"replace": &replace}.Encode(), manifest)
}

// DryRun is Submit with replace, without a change: each pod has its version before and after.
func (c *Client) DryRun(ctx context.Context, manifest []byte) (*SubmitReply, error) {
	return call[SubmitReply](ctx, c, http.MethodPost, submissions, "replace=true&dryRun=true", manifest)
}

// Put submits the one pod of a manifest in place of the previous one of that name.
func (c *Client) Put(ctx context.Context, namespace, name string, manifest []byte) (*SubmitReply, error) {
	return call[SubmitReply](ctx, c, http.MethodPut, submissionPath(namespace, name), "", manifest)
}

// Withdraw withdraws a submitted pod. The name is the one in its manifest, or that of a terminating pod. grace is the maximum
// grace period in seconds, for a terminating pod too; negative means its own. A dry run changes nothing.
func (c *Client) Withdraw(ctx context.Context, namespace, name string, grace int64, dryRun bool) (*SubmitReply, error) {
	query := "exact=true"
	if dryRun {
		query += "&dryRun=true"
	}
	if grace >= 0 {
		query += "&grace=" + strconv.FormatInt(grace, 10)
	}
	return call[SubmitReply](ctx, c, http.MethodDelete, submissionPath(namespace, name), query, nil)
}

// Submissions lists the submissions.
func (c *Client) Submissions(ctx context.Context) (*Submissions, error) {
	return get[Submissions](ctx, c, submissions, "")
}

// Submission returns the submission of that name, either the manifest's or the pod's.
func (c *Client) Submission(ctx context.Context, namespace, name string) (*messages.Submission, error) {
	return get[messages.Submission](ctx, c, submissionPath(namespace, name), "")
}

// WithdrawObject removes a submitted ConfigMap or Secret; a dry run changes nothing.
func (c *Client) WithdrawObject(ctx context.Context, kind, namespace, name string, dryRun bool) (*SubmitReply, error) {
	query := Params{"kind": &kind, "dryRun": &dryRun}.Encode()
	return call[SubmitReply](ctx, c, http.MethodDelete, submissionPath(namespace, name), query, nil)
}

// SubmittedObjects lists the submitted ConfigMaps and Secrets.
func (c *Client) SubmittedObjects(ctx context.Context) (*SubmittedObjects, error) {
	return get[SubmittedObjects](ctx, c, "/v1/objects", "")
}

func submissionPath(namespace, name string) string {
	return submissions + "/" + namespace + "/" + name // escaped as part of the URL
}

// AddChaos adds a rule or, in a dry run, returns the actors that it selects.
func (c *Client) AddChaos(ctx context.Context, r chaos.Rule, dryRun bool) (*ChaosRule, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return call[ChaosRule](ctx, c, http.MethodPost, chaosPath, Params{"dryRun": &dryRun}.Encode(), body)
}

// Chaos lists the rules.
func (c *Client) Chaos(ctx context.Context) (*ChaosRules, error) {
	return get[ChaosRules](ctx, c, chaosPath, "")
}

// StopChaos ends the rule with this ID, or all if it is 0.
func (c *Client) StopChaos(ctx context.Context, id uint64) (*ChaosRules, error) {
	path := chaosPath
	if id != 0 {
		path += "/" + strconv.FormatUint(id, 10)
	}
	return call[ChaosRules](ctx, c, http.MethodDelete, path, "", nil)
}
