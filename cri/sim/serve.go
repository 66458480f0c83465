package sim

import (
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is the message size the kubelet and containerd agree on, in bytes.
const maxMessage = 16 << 20

// Up listens again after Down. What the runtime knew before is still there; containers that ended meanwhile are simply
// exited, and no event tells of them, as after a restart of containerd. It fails when the runtime is up or closed.
func (r *Runtime) Up() error {
	r.serve.Lock()
	defer r.serve.Unlock()
	return r.upServing()
}

// upServing is Up with r.serve held.
func (r *Runtime) upServing() error {
	switch {
	case r.closed:
		return errors.New("sim: the runtime is closed")
	case r.server != nil:
		return errors.New("sim: the runtime is up already")
	}
	if r.served != nil {
		r.removeSocket()
	}
	addr := &net.UnixAddr{Name: r.opts.Socket, Net: "unix"}
	listener, err := net.ListenUnix("unix", addr)
	if err != nil {
		return fmt.Errorf("sim: listening on %q (%d bytes; at most 107 fit): %w", addr.Name, len(addr.Name), err)
	}
	// A killed runtime leaves its socket file behind, and connecting to it is refused; so it is here.
	listener.SetUnlinkOnClose(false)

	server := grpc.NewServer(
		grpc.UnaryInterceptor(r.interceptUnary),
		grpc.StreamInterceptor(r.interceptStream),
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(r.opts.MaxMessage),
	)
	runtimeapi.RegisterRuntimeServiceServer(server, &runtimeService{r: r})
	runtimeapi.RegisterImageServiceServer(server, &imageService{r: r})
	r.server, r.served = server, make(chan struct{})

	r.mu.Lock()
	r.serving = true
	r.lives++
	for _, c := range r.store.containers {
		c.signalled = false // containerd remembers this in memory only
	}
	r.changedLocked()
	r.mu.Unlock()

	go func(served chan<- struct{}) {
		defer close(served)
		// Serve ends with an error only when Stop raced it or the listener broke; either way the socket is gone,
		// which is what the client sees.
		_ = server.Serve(listener)
	}(r.served)
	return nil
}

// Down is the sudden death of the runtime: the listener and all connections are cut, calls under way are cancelled and
// have ended when Down returns. Containers keep running, and their time goes on. A runtime that is down stays down.
func (r *Runtime) Down() {
	r.serve.Lock()
	defer r.serve.Unlock()
	r.downServing()
}

// downServing is Down with r.serve held.
func (r *Runtime) downServing() {
	if r.server == nil {
		return
	}
	r.mu.Lock()
	r.serving = false
	r.events.forget()
	r.changedLocked()
	r.mu.Unlock()
	r.server.Stop()
	<-r.served
	r.server = nil
}

// crash takes down the runtime from inside one of its own calls, which must then end when its context does. A life of
// the runtime that begins after the call is not harmed.
func (r *Runtime) crash() {
	r.mu.Lock()
	life := r.lives
	r.mu.Unlock()
	r.wg.Go(func() {
		r.serve.Lock()
		defer r.serve.Unlock()
		r.mu.Lock()
		same := life == r.lives
		r.mu.Unlock()
		if same {
			r.downServing()
		}
	})
}

// removeSocket removes the socket file; one that is gone already is fine.
func (r *Runtime) removeSocket() {
	// The path was ours to create, and a file that cannot be removed shows in the next listen.
	_ = os.Remove(r.opts.Socket)
}
