// Package plugin connects to plugins of the node, such as CSI drivers and device plugins, that listen on unix sockets.
package plugin

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial returns a connection to a plugin's socket, which is opened by the first call. The permissions of the socket's folder
// authenticate the plugin.
func Dial(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))...)
}
