package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxMessageSize is the kubelet's bound for one CRI message, in bytes: a list
	// of a crowded node exceeds gRPC's default of 4 MiB.
	maxMessageSize = 16 << 20
	// maxSocketPath is the kernel's bound for a unix socket's path (unix(7)).
	maxSocketPath = 107

	// A runtime that comes back is to be noticed at once; a connect to a unix
	// socket costs next to nothing.
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = time.Second
)

// Options says where the runtime is and how hard it may be worked.
type Options struct {
	// RuntimeEndpoint is the socket of the RuntimeService, "unix:///path" or an
	// absolute path.
	RuntimeEndpoint string
	// ImageEndpoint is the socket of the ImageService; empty means the same.
	ImageEndpoint string
	// RequestTimeout bounds every call from the moment it has its slot, on top of
	// what the call itself waits for (a grace period, a command). 0 means 2 min.
	// PullImage alone has no bound: a pull that is cut off begins again from zero.
	RequestTimeout time.Duration
	// Limits is the budget.
	Limits Limits
	// Observe is told of each call that was made. It is called by many goroutines and must not wait; nil: nobody is told.
	Observe func(context.Context, Observation)
	// DialOptions are added to those of both connections.
	DialOptions []grpc.DialOption
	// Foreign says of the root folder in AnnotationRootDir whether it is another agent's. Lists leave out what has such a mark;
	// nil: they leave out nothing.
	Foreign func(rootDir string) bool
}

// Observation is one call that was made.
type Observation struct {
	Call, Object string        // its name, and what it was about
	Request      any           // only to be read
	Asked, Began time.Time     // when it queued, and when it had its slot
	Took         time.Duration // from when it had its slot
	Err          error
}

// Client speaks CRI v1 to one runtime. It is safe for concurrent use. A
// cancelled context ends a call's wait; what the runtime does with a call that
// was cut off is its own affair (a cancelled StartContainer deletes the task it
// made), so calls that change something belong into Operations.
type Client struct {
	opts    Options
	budget  [classCount]*slotQueue
	conn    *grpc.ClientConn
	imgConn *grpc.ClientConn // conn itself where the endpoints are the same
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	// pods of other agents, with their root folders, as the last full list said
	foreign atomic.Pointer[map[string]string]
}

// Dial prepares a client without connecting: the runtime may be absent, die and
// come back at any time, and calls made meanwhile fail at once with an error
// that IsUnavailable knows. An unusable endpoint is an error that names it.
func Dial(opts Options) (*Client, error) {
	opts.ImageEndpoint = cmp.Or(opts.ImageEndpoint, opts.RuntimeEndpoint)
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, 2*time.Minute)
	c := &Client{opts: opts}
	for class, limit := range opts.Limits.withDefaults() {
		c.budget[class] = &slotQueue{limit: limit}
	}
	dial := append([]grpc.DialOption{grpc.WithUnaryInterceptor(c.intercept)}, opts.DialOptions...)
	var err error
	if c.conn, err = connect(opts.RuntimeEndpoint, dial); err != nil {
		return nil, fmt.Errorf("container runtime endpoint: %w", err)
	}
	c.imgConn = c.conn
	if opts.ImageEndpoint != opts.RuntimeEndpoint {
		if c.imgConn, err = connect(opts.ImageEndpoint, dial); err != nil {
			return nil, errors.Join(fmt.Errorf("image service endpoint: %w", err), c.conn.Close())
		}
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(c.conn)
	c.images = runtimeapi.NewImageServiceClient(c.imgConn)
	return c, nil
}

// connect makes a lazy gRPC channel to a socket.
func connect(endpoint string, more []grpc.DialOption) (*grpc.ClientConn, error) {
	path, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return grpc.NewClient("passthrough:///cri", append([]grpc.DialOption{
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Some runtimes reject the authority gRPC would derive from a socket's path.
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageSize),
			grpc.MaxCallSendMsgSize(maxMessageSize)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: firstReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastReconnect,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, more...)...)
}

// SocketPath returns the absolute path of a CRI endpoint: "unix:///path" or
// just the path, as the kubelet's --container-runtime-endpoint takes it.
func SocketPath(endpoint string) (string, error) {
	if endpoint == "" {
		return "", errors.New("no endpoint is given")
	}
	path := endpoint
	if scheme, rest, found := strings.Cut(endpoint, "://"); found {
		if scheme != "unix" {
			return "", fmt.Errorf("endpoint %q: scheme %q is not supported, only unix", endpoint, scheme)
		}
		path = rest
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q is not an absolute path to a unix socket", endpoint)
	}
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("endpoint %q: a socket's path has at most %d bytes, this one %d", endpoint, maxSocketPath,
			len(path))
	}
	return path, nil
}

// Close ends the connections; calls under way fail.
func (c *Client) Close() error {
	err := c.conn.Close()
	if c.imgConn != c.conn {
		err = errors.Join(err, c.imgConn.Close())
	}
	return err
}
