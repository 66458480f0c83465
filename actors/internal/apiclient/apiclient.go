// Package apiclient makes the clients towards the API server: one for each kind of traffic, so that none starves another.
package apiclient

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options are what the configuration says of traffic to the API server.
type Options struct {
	// Kubeconfig is the path of the file with the server's address and the agent's credentials (--kubeconfig).
	Kubeconfig string
	// UserAgent is sent with each request, e.g. "playlet/v0.4 (linux/amd64)".
	UserAgent string
	// ContentType is the encoding of what is sent and asked for (contentType); protobuf where it is empty.
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
	// Server is the address, as the kubeconfig has it, for the log and for errors.
	Server string
}

const protobuf = "application/vnd.kubernetes.protobuf"

// New reads the kubeconfig and makes the clients; nothing is sent. Files that it names (certificates, tokens) are read again
// when they change. An error names the file and what to do; it never holds what the file holds.
func New(o Options) (*Clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil,
			fmt.Errorf("--kubeconfig: %s is not there; it has to hold the API server's address and this node's credentials: %w",
				o.Kubeconfig, err)
	case err != nil:
		return nil, fmt.Errorf("--kubeconfig: %s cannot be used: %w", o.Kubeconfig, err)
	}
	config.UserAgent = o.UserAgent
	config.ContentType, config.AcceptContentTypes = o.ContentType, o.ContentType
	if o.ContentType == "" || o.ContentType == protobuf {
		config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	}
	out := &Clients{Server: config.Host}
	for _, c := range []struct {
		client  *kubernetes.Interface
		qps     float32
		burst   int
		timeout time.Duration
	}{
		{&out.Main, o.QPS, o.Burst, 0},
		{&out.Heartbeat, -1, 0, o.HeartbeatTimeout},
		{&out.Events, o.EventQPS, o.EventBurst, 0},
	} {
		if *c.client, err = one(config, c.qps, c.burst, c.timeout); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %s cannot be used: %w", o.Kubeconfig, err)
		}
	}
	return out, nil
}

// one makes a client. client-go shares a connection among clients whose TLS configurations are alike; a dialer of its own
// keeps this one's apart.
func one(base *rest.Config, qps float32, burst int, timeout time.Duration) (kubernetes.Interface, error) {
	config := rest.CopyConfig(base)
	config.QPS, config.Burst, config.Timeout = qps, burst, timeout
	config.Dial = dialer()
	return kubernetes.NewForConfig(config)
}
