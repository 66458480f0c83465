package apiclient

import (
	"context"
	"net"
	"time"
)

// dialer makes connections as client-go does where it is not told otherwise. Each is a function of its own, by which
// client-go tells transports apart.
func dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
}
