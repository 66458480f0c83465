package sim

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// containerd answers NotFound with its proper code and nearly everything else as Unknown, with the cause in the text;
// callers have to live with that, and so have ours.

func errUnknown(format string, args ...any) error {
	return status.Errorf(codes.Unknown, format, args...)
}

func errNotFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format+": not found", args...)
}

func errNoContainer(id string) error {
	return errNotFound("an error occurred when try to find container %q", id)
}

func errNoSandbox() error {
	return errNotFound("an error occurred when try to find sandbox")
}
