package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// heap returns the heap and stacks in use, in MiB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
}

// Ten thousand clients that connect without a request, send an incomplete one, or stay after one, keep no other out, and never
// exceed the limit. Their cost is printed; clients and server are one process here.
func TestTenThousandIdleConnections(t *testing.T) {
	const many, limit, mib = 10_000, 256, 48
	r, _, readOnly := nodeRig(t, nil)
	end := r.listeners.ends[2]
	within(t, end, limit)
	before := heap()
	var dialer net.Dialer
	conns := make([]net.Conn, 0, limit)
	defer func() {
		for _, c := range conns {
			_ = c.Close() // possibly closed by the server
		}
	}()
	for i := range many {
		conn, err := dialer.DialContext(t.Context(), "tcp", readOnly)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		words := []string{"", "GET /pods HTT", "GET /healthz HTTP/1.1\r\nHost: n\r\nX-Long: " + strings.Repeat("x", 4<<10)}[i%3]
		if _, err := io.WriteString(conn, words); err != nil {
			t.Logf("connection %d: %v", i, err) // it was closed already
		}
		if conns = append(conns, conn); len(conns) > 2*limit { // this side keeps more than the server may
			_ = conns[0].Close()
			conns = conns[1:]
		}
	}
	if code, text := public(t, "http://"+readOnly+"/pods"); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	l := end.serving.listener.(*connLimit)
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	after := heap()
	t.Logf("%d connections, of which %d are open: %.1f MiB before, %.1f MiB after", many, open, before, after)
	if open > limit || after-before > mib {
		t.Errorf("%d connections are open, and take %.1f MiB", open, after-before)
	}
}

// Unauthenticated clients that all send headers of the maximum size, in as many small fields as possible, do not get the memory
// for all of that: those that sent most are closed, and an ordinary request is served in the meantime.
func TestHeadersAreBoundedTogether(t *testing.T) {
	const many, limit, mib = 256, 128, 64
	r, secure, _ := nodeRig(t, nil)
	end := r.listeners.ends[1]
	end.server.ReadHeaderTimeout = time.Hour // only bytes close connections here
	within(t, end, limit)
	l := end.serving.listener.(*connLimit)
	var head strings.Builder
	head.WriteString("GET /pods HTTP/1.1\r\nHost: n\r\n")
	for i := 0; head.Len() < maxNodeHeaderBytes-100; i++ {
		head.WriteString(strconv.FormatInt(int64(i), 36) + ":\n")
	}
	before := heap()
	var sent atomic.Int64
	var senders, held sync.WaitGroup
	over := make(chan struct{})
	for range many {
		senders.Add(1)
		held.Go(func() {
			d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			conn, err := d.DialContext(t.Context(), "tcp", secure)
			if err == nil {
				n, _ := io.WriteString(conn, head.String()) // it may be closed before the end
				sent.Add(int64(n))
				defer conn.Close() //nolint:errcheck // whoever ended it
			}
			senders.Done()
			<-over
		})
	}
	senders.Wait()
	if resp, text := ask(t, secure, "friend", "/pods", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	l.mu.Lock()
	heads, open := l.heads, l.open
	l.mu.Unlock()
	after := heap()
	for late := time.Now().Add(waitLimit); after-before > mib && time.Now().Before(late); after = heap() {
		time.Sleep(100 * time.Millisecond) // until closed connections are released
	}
	close(over)
	held.Wait()
	t.Logf("%d clients sent %.1f MiB of headers; %.1f MiB of %d connections are held: %.1f MiB before, %.1f MiB after", many,
		float64(sent.Load())/(1<<20), float64(heads)/(1<<20), open, before, after)
	if heads > limit*headShare || after-before > mib {
		t.Errorf("%d bytes of headers are held, and take %.1f MiB", heads, after-before)
	}
}

// within reopens an endpoint with another limit of connections, on the same address.
func within(t *testing.T, e *endpoint, conns int) {
	t.Helper()
	old, _ := e.current()
	e.conns, e.opener = conns, tcpOpener(old.listener.Addr().String())
	if err := old.listener.Close(); err != nil {
		t.Fatal(err)
	}
	<-old.ended
	if err := e.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An endless header is rejected before it is stored.
func TestOversizedHeaders(t *testing.T) {
	r, secure, readOnly := nodeRig(t, nil)
	within(t, r.listeners.ends[1], nodeConns)
	for name, of := range map[string]struct {
		dial  func(context.Context) (net.Conn, error)
		bytes int
	}{
		"10255": {func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", readOnly) }, maxHeaderBytes},
		"10250": {func(ctx context.Context) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			return d.DialContext(ctx, "tcp", secure)
		}, maxNodeHeaderBytes},
	} {
		conn, err := of.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
			t.Fatal(err)
		}
		go func() { // until the server has enough
			_, _ = io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: n\r\nX-Long: "+strings.Repeat("x", 2*of.bytes))
		}()
		answer := make([]byte, len("HTTP/1.1 431"))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 431" {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		_ = conn.Close() // the server may have closed it
	}
}
