// Package plugin makes connections to plugins of the node, such as CSI drivers and device plugins, that listen on unix sockets.
package plugin

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial makes a connection to what listens on a socket; it is connected with the first call. The socket's folder says who may.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
}
