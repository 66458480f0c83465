package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Kubernetes' protocol for remote commands, as in kubectl and kubelets: a stream for the outcome, one for each of stdin, stdout
// and stderr, and one for the size of the terminal.
const (
	streamVersion  = "v4.channel.k8s.io"
	versionHeader  = "X-Stream-Protocol-Version"
	streamType     = "streamType"
	causeExitCode  = "ExitCode"
	reasonExitCode = "NonZeroExitCode"
)

// PortForwardProtocol is Kubernetes' protocol for connections to ports.
const PortForwardProtocol = "portforward.k8s.io"

// Note is the header of an answer with a note for the user.
const Note = "X-Playlet-Note"

// Size is the size of a terminal in characters.
type Size struct{ Width, Height uint16 }

// ExecOptions describe the command; to attach to a container's own process, there is none.
type ExecOptions struct {
	UID        string // of the pod; empty means the desired one of this name
	Container  string // empty means the pod's default one
	Command    []string
	Stdin, TTY bool
}

// Params returns the parameters of a request.
func (o *ExecOptions) Params() Params {
	return Params{"uid": &o.UID, "container": &o.Container, "command": &o.Command, "stdin": &o.Stdin, "tty": &o.TTY}
}

// Terminal is the caller's end of a command. With a TTY, stdout receives all output.
type Terminal struct {
	Stdin          io.Reader // may be nil
	Stdout, Stderr io.Writer
	Sizes          <-chan Size  // changes of the terminal's size; nil if unknown
	Note           func(string) // receives notes for the user
}

// ErrCutOff is returned by Exec if the connection ended before the command did: the agent or the runtime was killed.
var ErrCutOff = errors.New("the connection broke before the command ended; it may still run")

// Exec runs a command in a container, and returns its exit code. An error means that the outcome is unknown, or that the command
// could not be run.
func (c *Client) Exec(ctx context.Context, namespace, pod string, o ExecOptions, t Terminal) (int, error) {
	return c.stream(ctx, podPath("/v1/exec/", namespace, pod), o, t)
}

// Attach connects the caller with a container's own process, until that ends. TTY must be as in the container's spec.
func (c *Client) Attach(ctx context.Context, namespace, pod string, o ExecOptions, t Terminal) error {
	_, err := c.stream(ctx, podPath("/v1/attach/", namespace, pod), o, t)
	return err
}

// PortForward opens a connection to a pod, in which each connection to one of its ports has two streams of its own, in the
// protocol of client-go's tools/portforward.
func (c *Client) PortForward(ctx context.Context, namespace, pod, uid string) (httpstream.Connection, error) {
	query := Params{"uid": &uid}.Encode()
	streams, _, err := c.upgrade(ctx, podPath("/v1/portforward/", namespace, pod), query, PortForwardProtocol, nil)
	return streams, err
}

func podPath(before, namespace, pod string) string {
	return before + url.PathEscape(namespace) + "/" + url.PathEscape(pod)
}

func (c *Client) stream(ctx context.Context, path string, o ExecOptions, t Terminal) (int, error) {
	streams, conn, err := c.upgrade(ctx, path, o.Params().Encode(), streamVersion, t.Note)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = streams.Close() }() // all useful data was read
	outcome, err := converse(streams, o, t)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", ErrCutOff, err)
	}
	return exitCode(outcome)
}

// upgrade requests a connection that is no longer HTTP, and returns it with its streams.
func (c *Client) upgrade(ctx context.Context, path, query, protocol string, note func(string)) (
	streams httpstream.Connection, conn net.Conn, err error,
) {
	var dialed net.Conn
	transport := &http.Transport{
		DisableKeepAlives: true, ResponseHeaderTimeout: upgradeTimeout,
		DialContext: func(ctx context.Context, _, _ string) (_ net.Conn, err error) {
			dialed, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", c.socket)
			return dialed, err
		},
	}
	u := url.URL{Scheme: "http", Host: "playlet", Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, versionHeader: {protocol}}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, c.explain(err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, nil, refusalOf(answer)
	}
	if text := answer.Header.Get(Note); text != "" && note != nil {
		note(text)
	}
	conn = &upgradedConn{dialed, answer.Body}
	if streams, err = spdy.NewClientConnection(conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return streams, conn, nil
}

// upgradeTimeout is longer than execTimeout of the agent.
const upgradeTimeout = time.Minute

// upgradedConn is a connection with data already read by HTTP.
type upgradedConn struct {
	net.Conn
	body io.Reader
}

func (c *upgradedConn) Read(b []byte) (int, error) { return c.body.Read(b) }

// converse passes all data until the command has ended, and returns its outcome.
func converse(conn httpstream.Connection, o ExecOptions, t Terminal) ([]byte, error) {
	open := func(kind string) (httpstream.Stream, error) {
		return conn.CreateStream(http.Header{streamType: {kind}})
	}
	outcome, err := open("error")
	if err != nil {
		return nil, err
	}
	var in, size httpstream.Stream
	if o.Stdin {
		if in, err = open("stdin"); err != nil {
			return nil, err
		}
	}
	outputs := map[string]io.Writer{"stdout": t.Stdout, "stderr": t.Stderr}
	if o.TTY {
		delete(outputs, "stderr")
	}
	var reading sync.WaitGroup
	for kind, to := range outputs {
		from, err := open(kind)
		if err != nil {
			return nil, err
		}
		reading.Go(func() { _, _ = io.Copy(to, from) }) // ends with the stream; the outcome has the details
	}
	if o.TTY && t.Sizes != nil {
		if size, err = open("resize"); err != nil {
			return nil, err
		}
		go tellSizes(size, t.Sizes, conn.CloseChan())
	}
	if in != nil {
		go func() { // it may wait for input forever
			_, _ = io.Copy(in, t.Stdin)
			_ = in.Close() // signals the end of the input to the command
		}()
		go func() { _, _ = io.Copy(io.Discard, in) }()
	}
	text, err := io.ReadAll(io.LimitReader(outcome, maxError))
	reading.Wait()
	return text, err
}

func tellSizes(to io.Writer, sizes <-chan Size, closed <-chan bool) {
	lines := json.NewEncoder(to)
	for {
		select {
		case s := <-sizes:
			if lines.Encode(s) != nil {
				return
			}
		case <-closed:
			return
		}
	}
}

// exitCode reads the outcome. An interrupted connection has none, which is not a success.
func exitCode(outcome []byte) (int, error) {
	if len(outcome) == 0 {
		return 0, ErrCutOff
	}
	status := &metav1.Status{}
	if err := json.Unmarshal(outcome, status); err != nil {
		return 0, fmt.Errorf("%w (%q)", ErrCutOff, outcome)
	}
	if status.Status == metav1.StatusSuccess {
		return 0, nil
	}
	if status.Reason == reasonExitCode && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); cause.Type == causeExitCode && err == nil {
				return code, nil
			}
		}
	}
	return 0, errors.New(status.Message)
}

// Restarts lists the containers of a pod that are being restarted.
type Restarts struct {
	Containers []string `json:"containers"`
}

// Restart ends and starts containers of a pod: those with these names that still have these IDs. It may be repeated.
func (c *Client) Restart(ctx context.Context, uid string, ids map[string]string) (*Restarts, error) {
	body, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	return call[Restarts](ctx, c, http.MethodPost, "/v1/restart/"+uid, "", body)
}

// LogOptions select a part of a container's log. The zero value is all output so far of its latest run.
type LogOptions struct {
	UID        string // of the pod; empty means the desired one of this name
	Container  string // empty means the pod's default one
	Follow     bool   // continue until the container ends
	Previous   bool   // of the run before the latest
	Timestamps bool   // prefix each line with its time, RFC 3339
	Since      time.Time
	Tail       *int64 // lines from the end; nil means all
	LimitBytes *int64 // nil means no limit
}

// Params returns the parameters of a request.
func (o *LogOptions) Params() Params {
	return Params{
		"uid": &o.UID, "container": &o.Container, "follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps,
		"sinceTime": &o.Since, "tailLines": &o.Tail, "limitBytes": &o.LimitBytes,
	}
}

// Logs writes a container's log to out, and calls note with the name of the container if the request had none. It returns when
// the log ends, with an error if it was interrupted.
func (c *Client) Logs(ctx context.Context, namespace, pod string, o LogOptions, out io.Writer, note func(string)) error {
	body, header, err := c.open(ctx, http.MethodGet, podPath("/v1/logs/", namespace, pod), o.Params().Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // read-only
	if text := header.Get(Note); text != "" {
		note(text)
	}
	if _, err := io.Copy(out, body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the log broke off: %w", err)
	}
	return nil
}
