package containers

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// connectTimeout bounds the steps before a stream: the runtime's answer with its URL, and the connection to that.
const connectTimeout = 30 * time.Second

// maxRefusal limits the bytes read of the runtime's answer if it does not stream.
const maxRefusal = 4 << 10

// StreamOptions select the streams. With a terminal, all output is on stdout.
type StreamOptions struct {
	Command                    []string // to exec
	Stdin, Stdout, Stderr, TTY bool
}

// Exec runs a command in a container, and streams with it.
func (h *Handlers) Exec(w http.ResponseWriter, r *http.Request, c ChosenContainer, o StreamOptions) error {
	return h.stream(w, r, &o, "exec", c.Pod, c.ID, func(ctx context.Context, id string) (string, error) {
		return h.conf.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: o.Command, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr && !o.TTY,
		})
	})
}

// Attach streams with a container's own process.
func (h *Handlers) Attach(w http.ResponseWriter, r *http.Request, c ChosenContainer, o StreamOptions) error {
	return h.stream(w, r, &o, "attach", c.Pod, c.ID, func(ctx context.Context, id string) (string, error) {
		return h.conf.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: id, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr && !o.TTY,
		})
	})
}

// PortForward streams with ports of a pod. SPDY clients name the ports in the stream, WebSocket clients before it.
func (h *Handlers) PortForward(w http.ResponseWriter, r *http.Request, pod *board.Pod, ports []int32) error {
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) { // SPDY within a WebSocket, which runtimes do not support either
		var failed error
		proxy.NewTunnelingHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			failed = h.forward(w, r, pod, nil, "portforward")
		})).ServeHTTP(w, r)
		return failed
	}
	return h.forward(w, r, pod, ports, "")
}

func (h *Handlers) forward(w http.ResponseWriter, r *http.Request, pod *board.Pod, ports []int32, tunneled string) error {
	sandbox := func() (string, error) { return h.sandbox(r.Context(), pod) }
	return h.stream(w, r, nil, tunneled, pod, sandbox, func(ctx context.Context, id string) (string, error) {
		return h.conf.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: ports})
	})
}

// sandbox returns the ID of the pod's newest ready sandbox.
func (h *Handlers) sandbox(ctx context.Context, pod *board.Pod) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := h.conf.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{cri.LabelPodUID: string(pod.Pod.UID)},
	})
	if err != nil {
		return "", refuse(http.StatusServiceUnavailable, "the container runtime does not list the pod's sandboxes: %v", err)
	}
	var newest *runtimeapi.PodSandbox
	for _, s := range found {
		if newest == nil || s.CreatedAt > newest.CreatedAt {
			newest = s
		}
	}
	if newest == nil {
		return "", bad("pod %q has no sandbox that is ready", pod.Pod.Name)
	}
	return newest.Id, nil
}

// stream connects the client with the runtime's streaming server, at the runtime's URL for the object. The URL grants the command
// to anyone who has it: only the agent uses it, and passes on bytes of a connection that both ends have upgraded. The stream
// lasts until either end closes it, or the agent ends. It counts as the subresource if it comes over a WebSocket that is
// converted to SPDY here.
func (h *Handlers) stream(w http.ResponseWriter, r *http.Request, o *StreamOptions, subresource string, pod *board.Pod,
	object func() (string, error), locate func(ctx context.Context, id string) (string, error)) error {
	release, err := take(h.streams, r, pod)
	if err != nil {
		return err
	}
	defer release()
	id, err := object()
	if err != nil {
		return err
	}
	if !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		return bad("a stream needs a connection that is upgraded: the request lacks Connection: Upgrade")
	}
	ctx, cancel := context.WithTimeout(r.Context(), connectTimeout)
	defer cancel()
	where, err := locate(ctx, id)
	if err != nil {
		status := http.StatusServiceUnavailable
		if cri.IsNotFound(err) {
			status = http.StatusNotFound
		}
		return refuse(status, "the container runtime does not open a stream with %s: %v", id, err)
	}
	if o == nil && subresource != "" {
		h.conf.CountWebSocket(subresource)
	}
	if o != nil && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		h.conf.CountWebSocket(subresource)
		h.translate(w, r, where, o)
		return nil
	}
	runtime, answer, buffered, err := h.callRuntime(r, where)
	if err != nil {
		return err
	}
	defer func() { _ = runtime.Close() }() // its data was sent, or the client has left
	client, taken, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return refuse(http.StatusInternalServerError, "the connection cannot be upgraded: %v", err)
	}
	fromClient := io.Reader(client)
	if taken != nil {
		fromClient = taken
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{}) // the request's deadlines end here
	for name, values := range w.Header() {
		answer.Header[name] = values
	}
	answer.Body = nil // the following data is the stream
	if answer.Write(client) != nil {
		return nil
	}
	h.join(r.Context(), client, fromClient, runtime, buffered)
	return nil
}

// join passes bytes both ways until one side or ctx ends, or the idle timeout passes.
func (h *Handlers) join(ctx context.Context, client net.Conn, fromClient io.Reader, runtime net.Conn, fromRuntime io.Reader) {
	end := func() { _ = errors.Join(client.Close(), runtime.Close()) }
	defer context.AfterFunc(ctx, end)()
	passed := func() {}
	if h.conf.IdleTimeout > 0 {
		idle := time.AfterFunc(h.conf.IdleTimeout, end)
		defer idle.Stop()
		passed = func() { idle.Reset(h.conf.IdleTimeout) }
	}
	splice(client, fromClient, runtime, fromRuntime, passed)
}

// translate converts a WebSocket with the protocol v5.channel.k8s.io, which runtimes do not support, to SPDY. The translator does
// not learn the URL, as its errors go to the client; it connects to a pipe within this process.
func (h *Handlers) translate(w http.ResponseWriter, r *http.Request, where string, o *StreamOptions) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the request's deadlines end here
	var joined sync.WaitGroup
	defer joined.Wait()
	dial := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		joined.Go(func() {
			// The client notices errors by the end of its stream.
			_ = guard.Call(h.conf.Log, "a stream over a WebSocket", func() error {
				defer func() { _ = there.Close() }()
				fromHere := bufio.NewReader(there)
				request, err := http.ReadRequest(fromHere)
				if err != nil {
					return err
				}
				runtime, answer, buffered, err := h.callRuntime(request.WithContext(r.Context()), where)
				if err != nil {
					_, err = io.WriteString(there, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
					return err
				}
				defer func() { _ = runtime.Close() }()
				answer.Body = nil // the following data is the stream
				if err := answer.Write(there); err != nil {
					return err
				}
				h.join(r.Context(), there, fromHere, runtime, buffered)
				return nil
			})
		})
		return here, nil
	}
	options := proxy.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr && !o.TTY, Tty: o.TTY}
	runtime := &url.URL{Scheme: "http", Host: "runtime", Path: "/"}
	proxy.NewStreamTranslatorHandler(runtime, &http.Transport{DialContext: dial}, 0, options).ServeHTTP(w, r)
}

// callRuntime sends the request to the runtime's streaming server. Connection errors contain its address, so they are only
// logged. The returned error has the runtime's own answer.
func (h *Handlers) callRuntime(r *http.Request, where string) (net.Conn, *http.Response, *bufio.Reader, error) {
	target, err := url.Parse(where)
	if err != nil {
		return nil, nil, nil, refuse(http.StatusBadGateway, "the container runtime's URL of the stream cannot be read")
	}
	conn, err := dialRuntime(r.Context(), target)
	if err == nil {
		var answer *http.Response
		var buffered *bufio.Reader
		if answer, buffered, err = requestStream(r, conn, target); err == nil {
			return conn, answer, buffered, nil
		}
		_ = conn.Close() // nothing was streamed
	}
	if _, refused := errors.AsType[*Error](err); !refused {
		h.conf.Log.Warn("the container runtime's streaming server cannot be used", "server", target.Host, "error", err)
		err = refuse(http.StatusBadGateway, "the container runtime's streaming server cannot be used; see the agent's log")
	}
	return nil, nil, nil, err
}

func dialRuntime(ctx context.Context, target *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	switch target.Scheme {
	case "http":
		return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), "80")))
	case "https":
		return new(tls.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), "443")))
	}
	return nil, fmt.Errorf("its URL has the scheme %q", target.Scheme)
}

// requestStream forwards the headers of an upgrade, and reads the answer.
func requestStream(r *http.Request, conn net.Conn, target *url.URL) (*http.Response, *bufio.Reader, error) {
	request := &http.Request{Method: r.Method, URL: target, Host: target.Host, Header: http.Header{}}
	for name, values := range r.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "Cookie": // intended for the agent
		default:
			request.Header[name] = values
		}
	}
	if err := conn.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		return nil, nil, err
	}
	if err := request.Write(conn); err != nil {
		return nil, nil, err
	}
	buffered := bufio.NewReader(conn)
	answer, err := http.ReadResponse(buffered, request)
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		var text []byte
		if answer.StatusCode >= http.StatusBadRequest { // the text of a redirect has the address
			text, _ = io.ReadAll(io.LimitReader(answer.Body, maxRefusal)) // its status is more important
		}
		return nil, nil, refuse(http.StatusBadGateway, "the container runtime does not stream: %s: %s", answer.Status, text)
	}
	return answer, buffered, conn.SetDeadline(time.Time{})
}

// splice passes bytes both ways until one side ends: the streaming protocol has no half-closed connections. A departed client
// ends the stream; otherwise the runtime would keep it, and the command's output, for as long as the command runs.
func splice(client net.Conn, fromClient io.Reader, runtime net.Conn, fromRuntime io.Reader, passed func()) {
	var both sync.WaitGroup
	pass := func(to net.Conn, from io.Reader) {
		_, _ = io.Copy(notifyingWriter{to, passed}, from) // any error ends it
		_ = errors.Join(client.Close(), runtime.Close())
	}
	both.Go(func() { pass(runtime, fromClient) })
	both.Go(func() { pass(client, fromRuntime) })
	both.Wait()
}

// notifyingWriter calls passed before each write.
type notifyingWriter struct {
	to     io.Writer
	passed func()
}

// Write implements io.Writer.
func (t notifyingWriter) Write(p []byte) (int, error) {
	t.passed()
	return t.to.Write(p)
}
