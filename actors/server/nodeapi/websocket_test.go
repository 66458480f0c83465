package nodeapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// speakSPDY serves a command of the runtime's streaming server: it echoes its input, and exits with code 3.
func speakSPDY(w http.ResponseWriter, r *http.Request) {
	opened := make(chan httpstream.Stream, 5)
	w.Header().Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, answered <-chan struct{}) error {
		go func() { <-answered; opened <- s }()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close() //nolint:errcheck // it may be closed
	streams := map[string]httpstream.Stream{}
	for len(streams) < 4 {
		select {
		case s := <-opened:
			streams[s.Headers().Get("streamType")] = s
		case <-conn.CloseChan():
			return
		}
	}
	var in bytes.Buffer
	_, _ = in.ReadFrom(streams["stdin"]) // to its end, which only v5 can signal
	_, _ = streams["stdout"].Write(in.Bytes())
	_, _ = streams["stderr"].Write([]byte("to stderr"))
	_, _ = streams["error"].Write([]byte(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`))
	for _, name := range []string{"stdout", "stderr", "error"} {
		_ = streams[name].Close()
	}
	<-conn.CloseChan() // the client has read it
}

// A WebSocket with v5.channel.k8s.io, which signals the end of the input, works with a runtime that only supports SPDY.
func TestExecByWebSocketV5(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.speak = speakSPDY
	client, err := remotecommand.NewWebSocketExecutorForProtocols(&restclient.Config{Host: r.url}, http.MethodGet,
		r.url+"/exec/ns/web/app?command=cat&input=1&output=1&error=1", "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a long input\n", 50_000)
	var out, errs bytes.Buffer
	err = client.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(long), Stdout: &out, Stderr: &errs})
	var code exec.CodeExitError
	if !errors.As(err, &code) || code.Code != 3 || out.String() != long || errs.String() != "to stderr" {
		t.Errorf("%v, %d bytes of %d, %q", err, out.Len(), len(long), &errs)
	}
	// Errors of the runtime are passed on, without its URL.
	r.runtime.speak = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such token", http.StatusNotFound) }
	err = client.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), r.runtime.streams.URL) {
		t.Errorf("the runtime refuses: %v", err)
	}
	r.expect(http.MethodGet, "/healthz", http.StatusOK, "ok")
	if n, got := len(r.webSockets), <-r.webSockets; n != 2 || got != "exec" {
		t.Errorf("counted %d streams over WebSockets, want 2; the first as %s", n, got)
	}
}

// A WebSocket with v4.channel.k8s.io, which runtimes support themselves, is passed on unchanged: the protocol's name, each
// channel and its data.
func TestExecByWebSocketV4(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.speak = func(w http.ResponseWriter, r *http.Request) {
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v4.channel.k8s.io": {Binary: true, Channels: []wsstream.ChannelType{
			wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel}}})
		_, streams, err := conn.Open(w, r)
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // the client has read it
		said := make(chan string, 1)
		go func() { // the channels may be used in any order
			line, _ := bufio.NewReader(streams[0]).ReadString('\n')
			said <- line
		}()
		var size remotecommand.TerminalSize
		if json.NewDecoder(streams[4]).Decode(&size) != nil {
			return
		}
		_, _ = fmt.Fprintf(streams[1], "%dx%d %s", size.Width, size.Height, <-said)
		_, _ = streams[3].Write([]byte(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`))
	}
	client, err := remotecommand.NewWebSocketExecutorForProtocols(&restclient.Config{Host: r.url}, http.MethodGet,
		r.url+"/exec/ns/web/app?command=sh&input=1&output=1&tty=1", "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = client.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("a line\n"), Stdout: &out, Tty: true,
		TerminalSizeQueue: &once{size: &remotecommand.TerminalSize{Width: 99, Height: 33}}})
	var code exec.CodeExitError
	if !errors.As(err, &code) || code.Code != 3 || out.String() != "99x33 a line\n" {
		t.Errorf("%v, %q", err, &out)
	}
}

// once is a terminal with one size.
type once struct{ size *remotecommand.TerminalSize }

func (o *once) Next() (size *remotecommand.TerminalSize) {
	size, o.size = o.size, nil
	return size
}

// kubectl's way of forwarding ports, SPDY within a WebSocket, works with a runtime that only supports SPDY.
func TestPortForwardByWebSocket(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.speak = func(w http.ResponseWriter, r *http.Request) {
		opened := make(chan httpstream.Stream, 5)
		w.Header().Set("X-Stream-Protocol-Version", "portforward.k8s.io")
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, answered <-chan struct{}) error {
			go func() { <-answered; opened <- s }()
			return nil
		})
		if conn == nil {
			return
		}
		defer conn.Close() //nolint:errcheck // it may be closed
		for {
			select {
			case s := <-opened:
				if s.Headers().Get("streamType") == "data" {
					_, _ = io.Copy(s, s)
				}
				_ = s.Close()
			case <-conn.CloseChan():
				return
			}
		}
	}
	u, err := url.Parse(r.url + "/portForward/ns/web")
	if err != nil {
		t.Fatal(err)
	}
	dialer, err := portforward.NewSPDYOverWebsocketDialer(u, &restclient.Config{Host: r.url})
	if err != nil {
		t.Fatal(err)
	}
	conn, protocol, err := dialer.Dial("portforward.k8s.io")
	if got := <-r.webSockets; got != "portforward" {
		t.Errorf("counted as %s", got)
	}
	if err != nil || protocol != "portforward.k8s.io" {
		t.Fatal(protocol, err)
	}
	defer conn.Close() //nolint:errcheck // all was read
	headers := http.Header{"port": {"80"}, "requestID": {"0"}, "streamType": {"error"}}
	if _, err := conn.CreateStream(headers); err != nil {
		t.Fatal(err)
	}
	headers["streamType"] = []string{"data"}
	data, err := conn.CreateStream(headers)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("what goes in comes out\n", 10_000)
	go func() {
		_, _ = io.WriteString(data, long)
		_ = data.Close()
	}()
	if got, err := io.ReadAll(data); string(got) != long || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
	}
}

// The API server copies a log to a WebSocket with wsstream.Reader, which drops bytes that it reads together with the end.
func TestLogsByWebSocket_ThroughAPIServer(t *testing.T) {
	r := newRig(t, nil)
	node := httptest.NewTLSServer(New(r.conf))
	t.Cleanup(node.Close)
	apiServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked, err := http.NewRequestWithContext(req.Context(), http.MethodGet, node.URL+req.URL.RequestURI(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := node.Client().Do(asked)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		if err := wsstream.NewReader(answer.Body, true, wsstream.NewDefaultReaderProtocols()).Copy(w, req); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(apiServer.Close)
	for query, want := range map[string]string{
		"": "out\nerr\n", "?tailLines=1": "err\n", "?limitBytes=5": "out\ne", "?follow=true&previous=true": "before\n",
	} {
		conn, err := websocket.Dial(strings.Replace(apiServer.URL, "http", "ws", 1)+"/containerLogs/ns/web/app"+query,
			"binary.k8s.io", apiServer.URL)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != want {
			t.Errorf("log with %q: got %q (%v), want %q", query, got, err, want)
		}
		_ = conn.Close() // its end was read
	}
}
