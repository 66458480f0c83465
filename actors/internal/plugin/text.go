package plugin

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/messages"
)

const (
	// maxText is the length, in bytes, to which a text of a plugin is cut.
	maxText = 2 << 10
	// maxHeaders is the permitted size of an answer's headers, in bytes. They include the text of an error.
	maxHeaders = 1 << 20
)

// Shorten cuts a text of a plugin, e.g. an error or a name, to 2 KiB.
func Shorten(text string) string { return messages.Shorten(text, maxText) }

// shortErrors cuts the texts of errors. The code stays.
func shortErrors(ctx context.Context, method string, q, a any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	err := invoke(ctx, method, q, a, conn, opts...)
	if s, ok := status.FromError(err); ok && err != nil && len(s.Message()) > maxText {
		return status.Error(s.Code(), Shorten(s.Message()))
	}
	return err
}
