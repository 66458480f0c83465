package container

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/playlet-dev/playlet/messages"
)

// withFileSystem adds the file system to the error of a start that failed on a mount for a pod with a user namespace: the runtime
// names only the path. Mount tables are read, and no server is asked.
func withFileSystem(err error) error {
	if err == nil {
		return nil
	}
	c := messages.CauseOf(err)
	if c.Code != messages.CauseNoIDMap {
		return err
	}
	path := filepath.Clean(c.Name)
	mounts, listErr := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	point := ""
	for _, m := range mounts { // the innermost around the path, and the last of several at one place
		around := m.Mountpoint == "/" || strings.HasPrefix(path+"/", m.Mountpoint+"/")
		if around && len(m.Mountpoint) >= len(point) {
			point, c.Detail = m.Mountpoint, m.FSType
		}
	}
	c.Text = fmt.Sprintf("the file system of %s, %s, cannot be mounted on this kernel for a pod with hostUsers: false",
		path, c.Detail)
	return errors.Join(c.Errorf("%s: %w", c.Text, err), listErr)
}
