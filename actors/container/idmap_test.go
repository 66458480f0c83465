package container

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// The error of a mount that cannot be mapped names the file system. /proc is one of its own wherever tests run.
func TestWithFileSystem(t *testing.T) {
	err := &cri.CallError{Call: "StartContainer", Err: status.Error(codes.Unknown, "failed to create containerd task: failed to fulfil mount "+
		"request: failed to set MOUNT_ATTR_IDMAP on /proc/sys: invalid argument (maybe the filesystem used doesn't support idmap mounts "+
		"on this kernel?)")}
	c := messages.CauseOf(withFileSystem(err))
	if c.Code != messages.CauseNoIDMap || c.Name != "/proc/sys" || c.Detail != "proc" ||
		c.Text != "the file system of /proc/sys, proc, cannot be mounted on this kernel for a pod with hostUsers: false" {
		t.Errorf("got %+v", c)
	}
	other := errors.New("exec format error")
	if got := withFileSystem(other); !errors.Is(got, other) || withFileSystem(nil) != nil {
		t.Errorf("got %v", got)
	}
}
