package server

import (
	"bufio"
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

	"github.com/playlet-dev/playlet/actors/server/admin"
)

// execTimeout bounds what comes before a stream: the runtime's answer with its URL, and the connection to that.
const execTimeout = 30 * time.Second

// maxRefusal is how much of the runtime's answer is looked at when it does not stream, in bytes.
const maxRefusal = 4 << 10

// stream joins the client with the runtime's streaming server. The URL is as good as the command itself, to whoever has
// it: so the agent alone calls it, and what it passes on are bytes of a connection that both ends have upgraded. The
// stream belongs to the process, not to an actor: it lasts until either end closes it, or the agent ends.
func (a *api) stream(w http.ResponseWriter, r *http.Request, where string) {
	if !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		fail(w, bad("a command is streamed over a connection that is upgraded: the request lacks Connection: Upgrade"))
		return
	}
	runtime, answer, buffered, err := callRuntime(r, where)
	if err != nil {
		fail(w, &admin.Error{Status: http.StatusBadGateway, Text: "the container runtime does not stream: " + err.Error()})
		return
	}
	defer func() { _ = runtime.Close() }() // what it held is sent, or nobody waits for it any more
	client, fromClient, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fail(w, err)
		return
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{}) // those of the request end here
	for name, values := range w.Header() {
		answer.Header[name] = values
	}
	answer.Body = nil // what follows is the stream
	if answer.Write(client) != nil {
		return
	}
	stop := context.AfterFunc(r.Context(), func() { _ = errors.Join(client.Close(), runtime.Close()) })
	defer stop()
	splice(client, fromClient, runtime, buffered)
}

// callRuntime has the runtime's streaming server take the request.
func callRuntime(r *http.Request, where string) (net.Conn, *http.Response, *bufio.Reader, error) {
	target, err := url.Parse(where)
	if err != nil {
		return nil, nil, nil, errors.New("its URL cannot be read") // and is not told
	}
	conn, err := dialRuntime(r.Context(), target)
	if err != nil {
		return nil, nil, nil, err
	}
	answer, buffered, err := requestStream(r, conn, target)
	if err != nil {
		return nil, nil, nil, errors.Join(err, conn.Close())
	}
	return conn, answer, buffered, nil
}

func dialRuntime(ctx context.Context, target *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	port := target.Port()
	switch {
	case target.Scheme == "http":
		if port == "" {
			port = "80"
		}
		return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
	case target.Scheme == "https":
		if port == "" {
			port = "443"
		}
		return new(tls.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
	}
	return nil, fmt.Errorf("its URL has the scheme %q", target.Scheme)
}

// requestStream passes the headers of an upgrade on, and reads the answer.
func requestStream(r *http.Request, conn net.Conn, target *url.URL) (*http.Response, *bufio.Reader, error) {
	request := &http.Request{Method: r.Method, URL: target, Host: target.Host, Header: http.Header{}}
	for name, values := range r.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "Cookie": // meant for the agent
		default:
			request.Header[name] = values
		}
	}
	if err := conn.SetDeadline(time.Now().Add(execTimeout)); err != nil {
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
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
		return nil, nil, errors.Join(fmt.Errorf("%s: %s", answer.Status, text), err)
	}
	return answer, buffered, conn.SetDeadline(time.Time{})
}

// splice passes bytes both ways until one side ends: the protocol of streams knows no half-closed connection. A client that has
// gone ends the stream, since the runtime would keep it, and the command's output, for as long as the command runs.
func splice(client net.Conn, fromClient io.Reader, runtime net.Conn, fromRuntime io.Reader) {
	var both sync.WaitGroup
	pass := func(to net.Conn, from io.Reader) {
		_, _ = io.Copy(to, from) // whatever ended it, it has ended
		_ = errors.Join(client.Close(), runtime.Close())
	}
	both.Go(func() { pass(runtime, fromClient) })
	both.Go(func() { pass(client, fromRuntime) })
	both.Wait()
}
