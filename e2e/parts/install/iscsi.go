package install

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// iscsiDir holds Debian 12's initiator, as an archive of its files: iscsiadm, iscsid and their libraries.
const iscsiDir = "debian-12-iscsi-1"

// EnsureISCSI gets Debian 12's initiator for a virtual machine, and returns the archive. Nothing of it is installed here.
func EnsureISCSI(ctx context.Context, log io.Writer) (archive string, err error) {
	err = locked(ctx, log, func(j *job) error {
		return j.place(iscsiDir, func(dir string) error {
			if err := j.canApt("Debian 12's open-iscsi"); err != nil {
				return err
			}
			return j.step("downloading Debian 12's open-iscsi", func() error {
				files, err := os.MkdirTemp("", "playlet-iscsi-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(files) //nolint:errcheck // a temporary directory
				if err := j.aptUpdate(); err != nil {
					return err
				}
				if err := j.unpackNewest(files, "open-iscsi", "libisns0", "libopeniscsiusr"); err != nil {
					return err
				}
				return run(exec.CommandContext(j.ctx, "tar", "-c", "-f", filepath.Join(dir, "files.tar"), "-C", files, "."))
			})
		})
	})
	if err != nil {
		return "", fmt.Errorf("no initiator of iSCSI: %w", err)
	}
	cache, err := cacheDir()
	return filepath.Join(cache, iscsiDir, "files.tar"), err
}
