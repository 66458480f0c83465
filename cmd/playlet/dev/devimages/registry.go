package devimages

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Tag is the tag of a reference that names none. It is not "latest", with which Kubernetes would pull every time.
const Tag = "1"

// Registry is an OCI registry in this process, over plain HTTP on a loopback address, with its images in memory.
// containerd pulls from a loopback address over plain HTTP without being configured to. All methods may be called
// from several goroutines.
type Registry struct {
	// Addr is the host:port it listens on.
	Addr string

	store  http.Handler
	server *http.Server
	done   chan struct{}
	closed func() error

	mu        sync.Mutex
	intercept func(*http.Request) Fault
	user      string
	password  string
	requests  []Request
}

// StartRegistry starts a registry on a free port of 127.0.0.1 that holds the images pause and hello. It ends with
// Close, or when ctx ends. The address belongs to the network namespace of the calling thread.
func StartRegistry(ctx context.Context) (*Registry, error) {
	return StartRegistryOn(ctx, "127.0.0.1:0")
}

// StartRegistryOn is StartRegistry with a host:port of the caller's choice: image references hold the port, so one
// that stays the same keeps them valid when the registry is started again.
func StartRegistryOn(ctx context.Context, addr string) (*Registry, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("image registry: %w", err)
	}
	quiet := log.New(io.Discard, "", 0)
	r := &Registry{
		Addr:  listener.Addr().String(),
		store: registry.New(registry.Logger(quiet)),
		done:  make(chan struct{}),
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	r.closed = sync.OnceValue(r.server.Close)
	for _, program := range []Program{Pause, Hello} {
		if err := r.pushOwn(program); err != nil {
			return nil, fmt.Errorf("image registry: %w (and %v)", err, listener.Close())
		}
	}
	go func() {
		defer close(r.done)
		if err := r.server.Serve(listener); err != http.ErrServerClosed {
			quiet.Print(err)
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = r.closed() }) // Close tells
	go func() { <-r.done; stop() }()
	return r, nil
}

func (r *Registry) pushOwn(program Program) error {
	index, err := Image(program)
	if err != nil {
		return err
	}
	return r.Push(string(program), index)
}

// Ref gives the reference to pull name by: "hello" is Addr/hello:1, "a/b:2" is Addr/a/b:2.
func (r *Registry) Ref(name string) string {
	repo, tag := split(name)
	return r.Addr + "/" + repo + ":" + tag
}

// Close stops listening, ends the connections there are, and waits for the server to be gone. It may be called again.
func (r *Registry) Close() error {
	err := r.closed()
	<-r.done
	return err
}

// split cuts repository[:tag] apart.
func split(name string) (repo, tag string) {
	repo, tag, tagged := strings.Cut(name, ":")
	if !tagged {
		tag = Tag
	}
	return repo, tag
}
