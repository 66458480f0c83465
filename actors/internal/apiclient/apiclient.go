// Package apiclient makes the clients towards the API server: one for each kind of traffic, so that none starves another.
package apiclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options configure the traffic to the API server.
type Options struct {
	// Config makes the configuration of one client: the server's address and the agent's credentials. It is called once for each.
	Config func() *rest.Config
	// UserAgent is sent with each request, e.g. "playlet/v0.4 (linux/amd64)".
	UserAgent string
	// ContentType is the encoding of requests and responses (contentType); empty means protobuf.
	ContentType string
	// QPS and Burst bound all requests but the lease's and the node status' (kubeAPIQPS, kubeAPIBurst), a second.
	QPS, EventQPS     float32
	Burst, EventBurst int
	// HeartbeatTimeout bounds one request of the lease or of the node's status, which are worth nothing when they are late.
	HeartbeatTimeout time.Duration
}

// Clients are the clients. Safe for concurrent use.
type Clients struct {
	// Main is for everything that is not named below.
	Main kubernetes.Interface
	// Heartbeat is for the lease and the node's status. It has a connection of its own: a full Main does not delay it.
	Heartbeat kubernetes.Interface
	// Events is for Kubernetes Events.
	Events kubernetes.Interface
	// TokenReviews authenticates tokens for port 10250; any client that can connect there causes such requests. AccessReviews
	// authorizes authenticated users.
	TokenReviews, AccessReviews kubernetes.Interface
	// Server is the address, as the kubeconfig has it, for the log and for errors.
	Server string
}

const protobuf = "application/vnd.kubernetes.protobuf"

// New makes the clients; nothing is sent.
func New(o Options) (*Clients, error) {
	out := &Clients{}
	for _, c := range []struct {
		client  *kubernetes.Interface
		qps     float32
		burst   int
		timeout time.Duration
	}{
		{&out.Main, o.QPS, o.Burst, 0},
		{&out.Heartbeat, -1, 0, o.HeartbeatTimeout},
		{&out.Events, o.EventQPS, o.EventBurst, 0},
		{&out.TokenReviews, o.QPS, o.Burst, 0},
		{&out.AccessReviews, o.QPS, o.Burst, 0},
	} {
		config := o.Config()
		out.Server = config.Host
		config.UserAgent, config.ContentType, config.AcceptContentTypes = o.UserAgent, o.ContentType, o.ContentType
		if o.ContentType == "" || o.ContentType == protobuf {
			config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
		}
		config.QPS, config.Burst, config.Timeout = c.qps, c.burst, c.timeout
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounds{next} })
		if config.Transport == nil {
			// client-go shares a connection among clients with equal TLS configurations. A dialer of its own gives this one
			// separate connections.
			config.Dial = dialer()
		}
		var err error
		if *c.client, err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("--kubeconfig cannot be used: %w", err)
		}
	}
	return out, nil
}

// dialer returns client-go's default dialer as a new function. client-go distinguishes transports by the identity of that
// function.
func dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
}
