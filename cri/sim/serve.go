package sim

import (
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is the message size of the kubelet and containerd, in bytes.
const maxMessage = 16 << 20

// Up listens again after Down. The runtime's earlier state is still there; containers that exited in the meantime are simply
// exited, without an event, as after a restart of containerd. It fails if the runtime is up or closed.
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
	// Like a killed runtime, leave the socket file behind: connecting to it is refused.
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
		// Serve only fails if Stop raced it or the listener broke; either way the socket is gone, which the client notices.
		_ = server.Serve(listener)
	}(r.served)
	return nil
}

// Down is the sudden death of the runtime: it cuts the listener and all connections, and cancels calls in progress, which have
// ended when Down returns. Containers keep running, and their time goes on. A second Down does nothing.
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

// crash takes down the runtime from inside one of its own calls, which must then end with its context. It does not affect a later
// life of the runtime.
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

// removeSocket removes the socket file; an absent one is not an error.
func (r *Runtime) removeSocket() {
	// The runtime owns the path, and a file that cannot be removed shows in the next listen.
	_ = os.Remove(r.opts.Socket)
}
