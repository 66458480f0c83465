// Package plugin connects to plugins of the node, such as CSI drivers and device plugins, that listen on unix sockets.
package plugin

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial returns a connection to a plugin's socket, which is opened by the first call. The permissions of the socket's folder
// authenticate the plugin. Errors of calls have a short text: plugins may send megabytes, and errors go to logs and statuses.
func Dial(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithChainUnaryInterceptor(shortErrors),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))...)
}
