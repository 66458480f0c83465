package plugin

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	// maxText is the length, in bytes, to which a text of a plugin is cut.
	maxText = 2 << 10
	// maxHeaders is the permitted size of an answer's headers, in bytes. They include the text of an error.
	maxHeaders = 1 << 20
)

// Shorten cuts a text of a plugin, e.g. an error or a name, to 2 KiB.
func Shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + " …" // the cut may split a character
}

// shortErrors cuts the texts of errors. The code stays.
func shortErrors(ctx context.Context, method string, q, a any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	err := invoke(ctx, method, q, a, conn, opts...)
	if s, ok := status.FromError(err); ok && err != nil && len(s.Message()) > maxText {
		return status.Error(s.Code(), Shorten(s.Message()))
	}
	return err
}
