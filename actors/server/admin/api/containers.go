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

// Kubernetes' protocol for remote commands, as kubectl and kubelets speak it: a stream for the outcome, one for each of
// stdin, stdout and stderr, and one for the size of the terminal.
const (
	streamVersion  = "v4.channel.k8s.io"
	versionHeader  = "X-Stream-Protocol-Version"
	streamType     = "streamType"
	causeExitCode  = "ExitCode"
	reasonExitCode = "NonZeroExitCode"
)

// PortForwardProtocol is Kubernetes' protocol for connections to ports.
const PortForwardProtocol = "portforward.k8s.io"

// Note is the header of an answer that says what is worth saying beside it.
const Note = "X-Playlet-Note"

// Size is that of a terminal, in characters.
type Size struct{ Width, Height uint16 }

// ExecOptions say what is run; where a container's own process is attached to, there is no command.
type ExecOptions struct {
	UID        string // of the pod; empty: the one of this name that is wanted
	Container  string // empty: the pod's default one
	Command    []string
	Stdin, TTY bool
}

// Params are those of a request.
func (o *ExecOptions) Params() Params {
	return Params{"uid": &o.UID, "container": &o.Container, "command": &o.Command, "stdin": &o.Stdin, "tty": &o.TTY}
}

// Terminal is the caller's end of a command. With a TTY, stdout has all that the command writes.
type Terminal struct {
	Stdin          io.Reader // nil: none
	Stdout, Stderr io.Writer
	Sizes          <-chan Size  // of the terminal, as it changes; nil: not told
	Note           func(string) // is told what is worth saying
}

// ErrCutOff is what Exec returns when the connection ended before the command did: the agent was killed, or the runtime.
var ErrCutOff = errors.New("the connection broke off before the command's end was told; it may still run")

// Exec runs a command in a container, and gives its exit code. An error means that it is not known how the command ended,
// or that it could not be run.
func (c *Client) Exec(ctx context.Context, namespace, pod string, o ExecOptions, t Terminal) (int, error) {
	return c.stream(ctx, podPath("/v1/exec/", namespace, pod), o, t)
}

// Attach joins the caller with a container's own process, until that ends. TTY must be as in the container's spec.
func (c *Client) Attach(ctx context.Context, namespace, pod string, o ExecOptions, t Terminal) error {
	_, err := c.stream(ctx, podPath("/v1/attach/", namespace, pod), o, t)
	return err
}

// PortForward opens a connection to a pod, over which each connection to one of its ports has two streams of its own, in the
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
	defer func() { _ = streams.Close() }() // all that is of use has been read
	outcome, err := converse(streams, o, t)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", ErrCutOff, err)
	}
	return exitCode(outcome)
}

// upgrade asks for a connection of its own, which HTTP has no say in any more, and gives it with its streams.
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

// upgradedConn is a connection of which HTTP has read some.
type upgradedConn struct {
	net.Conn
	body io.Reader
}

func (c *upgradedConn) Read(b []byte) (int, error) { return c.body.Read(b) }

// converse passes everything on until the command has ended, and gives what was said of that.
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
		reading.Go(func() { _, _ = io.Copy(to, from) }) // its end, whatever that is; the outcome tells more
	}
	if o.TTY && t.Sizes != nil {
		if size, err = open("resize"); err != nil {
			return nil, err
		}
		go tellSizes(size, t.Sizes, conn.CloseChan())
	}
	if in != nil {
		go func() { // it may wait for a key for ever
			_, _ = io.Copy(in, t.Stdin)
			_ = in.Close() // that is how the command learns of the end
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

// exitCode reads the outcome. A connection that breaks off leaves none, which is no success.
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

// Restarted are the containers of a pod that are being started again.
type Restarted struct {
	Containers []string `json:"containers"`
}

// Restart has containers of a pod ended and started again: those of these names that have these IDs still. It may be repeated.
func (c *Client) Restart(ctx context.Context, uid string, ids map[string]string) (*Restarted, error) {
	body, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	return call[Restarted](ctx, c, http.MethodPost, "/v1/restart/"+uid, "", body)
}

// LogOptions choose what is read of a container's log. The zero value is all that its latest run has written so far.
type LogOptions struct {
	UID        string // of the pod; empty: the one of this name that is wanted
	Container  string // empty: the pod's default one
	Follow     bool   // go on until the container ends
	Previous   bool   // of the run before the latest
	Timestamps bool   // each line begins with its time, RFC 3339
	Since      time.Time
	Tail       *int64 // lines from the end; nil: all
	LimitBytes *int64 // nil: no limit
}

// Params are those of a request.
func (o *LogOptions) Params() Params {
	return Params{
		"uid": &o.UID, "container": &o.Container, "follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps,
		"sinceTime": &o.Since, "tailLines": &o.Tail, "limitBytes": &o.LimitBytes,
	}
}

// Logs writes a container's log to out, and what is worth saying beside it to note: which container was chosen where none
// was named. It returns when the log ends, with an error where it was broken off.
func (c *Client) Logs(ctx context.Context, namespace, pod string, o LogOptions, out io.Writer, note func(string)) error {
	body, header, err := c.open(ctx, http.MethodGet, podPath("/v1/logs/", namespace, pod), o.Params().Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // only read from
	if text := header.Get(Note); text != "" {
		note(text)
	}
	if _, err := io.Copy(out, body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the log broke off: %w", err)
	}
	return nil
}
