//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
)

// porter is an HTTP server on the node that pods' hooks ask: its answer is theirs to wait for. PORTER in a spec stands
// for its address.
type porter struct {
	host, port string

	mu    sync.Mutex
	doors map[string]*door // by path
}

// door is one path of a porter.
type door struct {
	arrived chan struct{} // closed at the first request
	open    chan struct{} // closed by the test: the question is answered then
	first   func()        // called before arrived is closed, where it is set
	meet    sync.Once
}

func newPorter(t *testing.T) *porter {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", isolate.NodeIP+":0")
	must(t, err)
	p := &porter{doors: map[string]*door{}}
	p.host, p.port, err = net.SplitHostPort(listener.Addr().String())
	must(t, err)
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return p
}

func (p *porter) door(path string) *door {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doors[path] == nil {
		p.doors[path] = &door{arrived: make(chan struct{}), open: make(chan struct{})}
	}
	return p.doors[path]
}

// ServeHTTP implements http.Handler.
func (p *porter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := p.door(r.URL.Path + "?" + r.Header.Get("X-Who"))
	d.meet.Do(func() {
		if d.first != nil {
			d.first()
		}
		close(d.arrived)
	})
	select {
	case <-d.open:
		w.WriteHeader(http.StatusOK)
	case <-r.Context().Done():
	}
}

// await waits for a request at the door.
func (d *door) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	select {
	case <-d.arrived:
	case <-ctx.Done():
		t.Fatal("nobody asks")
	}
}

// addressed puts the porter's address into a spec.
func (p *porter) addressed(spec string) string {
	return strings.ReplaceAll(spec, "PORTER", fmt.Sprintf("host: %s, port: %s", p.host, p.port))
}
