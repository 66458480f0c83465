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
	// maxMessageSize is the kubelet's limit for one CRI message, in bytes: a list of a crowded node exceeds gRPC's default of 4
	// MiB.
	maxMessageSize = 16 << 20
	// maxSocketPath is the kernel's limit for a unix socket's path (unix(7)).
	maxSocketPath = 107

	// A returning runtime must be noticed at once, and connecting to a unix socket costs next to nothing.
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = time.Second
)

// Options configures the connections to a runtime and the limits of their use.
type Options struct {
	// RuntimeEndpoint is the socket of the RuntimeService, "unix:///path" or an
	// absolute path.
	RuntimeEndpoint string
	// ImageEndpoint is the socket of the ImageService; empty means the same.
	ImageEndpoint string
	// RequestTimeout bounds every call from the moment it has its slot, on top of the time that the call itself waits (a grace
	// period, a command). 0 means 2 min. PullImage has no bound: an interrupted pull starts from zero.
	RequestTimeout time.Duration
	// Limits is the budget per class.
	Limits Limits
	// Observe receives each call that was made. It is called by many goroutines and must not block; nil disables it.
	Observe func(context.Context, Observation)
	// DialOptions are added to the options of both connections.
	DialOptions []grpc.DialOption
	// Foreign reports whether the root folder in AnnotationRootDir belongs to another agent. Lists omit objects marked by another
	// agent; nil omits nothing.
	Foreign func(rootDir string) bool
}

// Observation describes one call that was made.
type Observation struct {
	Call, Object string        // the method and its object
	Request      any           // read-only
	Asked, Began time.Time     // when it was queued, and when it got its slot
	Took         time.Duration // since it got its slot
	Err          error
}

// Client speaks CRI v1 to one runtime. It is safe for concurrent use. A cancelled context ends the wait for a call, but the
// runtime handles an interrupted call in its own way (a cancelled StartContainer deletes the task it made). Calls that change
// something therefore belong into Operations.
type Client struct {
	opts   Options
	budget [classCount]*slotQueue
	// startRemovals bounds the slots of ClassStart that removals as part of a start hold.
	startRemovals *slotQueue
	conn          *grpc.ClientConn
	imgConn       *grpc.ClientConn // equal to conn if the endpoints are the same
	runtime       runtimeapi.RuntimeServiceClient
	images        runtimeapi.ImageServiceClient
	ends          clientEnds
	// root folders of other agents' pods by UID, from the last full list
	foreign atomic.Pointer[map[string]string]
}

// Dial prepares a client without connecting: the runtime may be absent, die and come back at any time, and calls made meanwhile
// fail at once with an error that satisfies IsUnavailable. The error about an unusable endpoint names it.
func Dial(opts Options) (*Client, error) {
	opts.ImageEndpoint = cmp.Or(opts.ImageEndpoint, opts.RuntimeEndpoint)
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, 2*time.Minute)
	c := &Client{opts: opts}
	for class, limit := range opts.Limits.withDefaults() {
		c.budget[class] = &slotQueue{limit: limit}
	}
	c.startRemovals = &slotQueue{limit: third(c.budget[ClassStart].limit)}
	c.budget[ClassRemove].yieldTo(c.budget[ClassStart], c.budget[ClassStop])
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

// connect creates a lazy gRPC channel to a socket.
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

// Close closes the connections; calls in progress fail.
func (c *Client) Close() error {
	err := c.conn.Close()
	if c.imgConn != c.conn {
		err = errors.Join(err, c.imgConn.Close())
	}
	return err
}
