package nodeapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playlet-dev/playlet/actors/server/containers"
)

// limits configures the containers' handlers with other limits.
func limits(change func(*containers.Config)) func(*Config) {
	return func(c *Config) {
		conf := containers.Config{Board: c.Board, Runtime: c.Runtime.(containers.Runtime)}
		change(&conf)
		c.Containers = containers.New(conf)
	}
}

// An idle stream is ended at both ends; a stream with traffic is not.
func TestIdleStreamsEnd(t *testing.T) {
	r := newRig(t, limits(func(c *containers.Config) { c.IdleTimeout = 200 * time.Millisecond }))
	s, resp := r.upgrade(http.MethodPost, "/attach/ns/web/app?input=1&output=1", nil)
	if s == nil {
		t.Fatal(resp.Status)
	}
	r.echoed(s)
	if rest, err := io.ReadAll(s); len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	<-r.runtime.ended
}

// A client that requests a log without reading it is disconnected, and its resources are released.
func TestUnreadAnswer_EndsConnection(t *testing.T) {
	r := newRig(t, limits(func(c *containers.Config) { c.WriteTimeout = 100 * time.Millisecond }))
	line := "2026-11-21T12:00:01.5Z stdout F " + strings.Repeat("x", 1<<10) + "\n"
	if err := os.WriteFile(filepath.Join(r.runtime.dir, "run2"), []byte(strings.Repeat(line, 64<<10)), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // whoever ended it
	if _, err := io.WriteString(conn, "GET /containerLogs/ns/web/app HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil { // it can be read
		t.Fatal(err)
	}
	for logs := 1; logs > 0; logs, _ = r.conf.Containers.Open() { // the test's own deadline bounds it
		time.Sleep(time.Millisecond)
	}
}

// slowClient reads each piece of an answer after a pause, and none after its deadline.
type slowClient struct {
	*httptest.ResponseRecorder
	pause time.Duration
	until time.Time
}

// SetWriteDeadline supports http.ResponseController.
func (s *slowClient) SetWriteDeadline(at time.Time) error {
	s.until = at
	return nil
}

func (s *slowClient) Write(p []byte) (int, error) {
	if time.Sleep(s.pause); time.Now().After(s.until) {
		return 0, os.ErrDeadlineExceeded
	}
	return s.ResponseRecorder.Write(p)
}

// A slow client that keeps reading gets the whole answer. After an interruption, it would have to start from zero.
func TestLogs_LastAsLongAsTheClient(t *testing.T) {
	r := newRig(t, nil)
	const lines = 20_000
	line := strings.Repeat("x", 1<<10) + "\n"
	text := strings.Repeat("2026-11-21T12:00:01.5Z stdout F "+line, lines)
	for _, file := range []string{filepath.Join(r.runtime.dir, "run2"), filepath.Join(r.conf.SystemLogs, "big.log")} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, size := range map[string]int{"/containerLogs/ns/web/app": lines * len(line), "/logs/big.log": len(text)} {
		synctest.Test(t, func(t *testing.T) {
			w, began := &slowClient{ResponseRecorder: httptest.NewRecorder(), pause: shortTimeout - time.Second}, time.Now()
			New(r.conf).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Body.Len() != size {
				t.Errorf("%s: the client got %d bytes after %s, want %d", path, w.Body.Len(), time.Since(began), size)
			}
			if took := time.Since(began); took <= time.Hour {
				t.Errorf("%s took %s, which shows nothing", path, took)
			}
		})
	}
}

func TestStreaming_EndsWhereNothingIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newAPI(Config{}).streaming(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				time.Sleep(longTimeout - time.Second)
				if _, err := w.Write([]byte("found")); err != nil || r.Context().Err() != nil {
					t.Fatalf("ended while it progressed: %v, %v", err, r.Context().Err())
				}
			}
			<-r.Context().Done()
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/logs/", nil))
	})
}

// A request with a missing body, or an endless header, holds no resources forever: it has a deadline.
func TestDeadlinesAreSet(t *testing.T) {
	seen := make(chan error, 1)
	r := newRig(t, func(c *Config) {
		c.Healthz = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			until, ok := r.Context().Deadline()
			if !ok || time.Until(until) > shortTimeout {
				seen <- errors.New("it has no deadline")
				return
			}
			seen <- nil
		})
	})
	r.expect(http.MethodGet, "/healthz", http.StatusOK, "")
	if err := <-seen; err != nil {
		t.Error(err)
	}
}

// Answers made in memory take turns; a client whose wait ends gets an error.
func TestBigAnswersTakeTurns(t *testing.T) {
	inside, out := make(chan struct{}, 2*maxShort), make(chan struct{})
	a := newAPI(Config{})
	h := a.bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		select {
		case <-out:
		case <-r.Context().Done():
		}
	}))
	var all sync.WaitGroup
	serve := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil).WithContext(ctx))
		return w.Code
	}
	for range maxShort / 2 { // the share of one client
		all.Go(func() { serve(t.Context()) })
		<-inside
	}
	gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if code := serve(gone); code != http.StatusServiceUnavailable || len(inside) > 0 {
		t.Errorf("one too many: %d", code)
	}
	next := make(chan int)
	go func() { next <- serve(t.Context()) }()
	close(out)
	if code := <-next; code != http.StatusOK {
		t.Errorf("the next one: %d", code)
	}
	all.Wait()
}

// TestThereIsTimeToRefuse checks that the error about an expired wait reaches the client before the connection's deadline.
func TestThereIsTimeToRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, out := newAPI(Config{}), make(chan struct{})
		h := a.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-out }))
		var all sync.WaitGroup
		serve := func() int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
			return w.Code
		}
		for range maxShort / 2 { // the share of one client
			all.Go(func() { serve() })
		}
		synctest.Wait()
		began := time.Now()
		if code := serve(); code != http.StatusServiceUnavailable || time.Since(began) != queueTimeout {
			t.Errorf("%d after %s", code, time.Since(began))
		}
		close(out)
		all.Wait()
	})
}

// unread is a client that reads nothing of an answer until released.
type unread struct {
	*httptest.ResponseRecorder
	begun, out chan struct{}
}

func (u unread) Write(p []byte) (int, error) {
	u.begun <- struct{}{}
	<-u.out
	return u.ResponseRecorder.Write(p)
}

// Clients that do not read hold up no turn, and a limited number of answers is kept for them; answers of another port are not
// affected.
func TestSlowReadersHoldUpNoTurn(t *testing.T) {
	conf := Config{Figures: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("whole"))
	})}
	h, other := ReadOnly(conf), ReadOnly(conf)
	request := func() *http.Request { return httptest.NewRequest(http.MethodGet, "/metrics/resource", nil) }
	begun, out := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for i := range maxSends / 2 { // the share of one client
		if i == maxShort+1 {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, request()); w.Code != http.StatusAccepted || w.Body.String() != "whole" {
				t.Errorf("beside slow readers: %d %q", w.Code, w.Body)
			}
		}
		all.Go(func() { h.ServeHTTP(unread{httptest.NewRecorder(), begun, out}, request()) })
		<-begun
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, request()); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		w.Header().Get("Content-Encoding") != "" {
		t.Errorf("one too many: %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	if other.ServeHTTP(w, request()); w.Code != http.StatusAccepted {
		t.Errorf("on the other port: %d", w.Code)
	}
	if w.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("its header is %v", w.Header())
	}
	close(out)
	all.Wait()
}
