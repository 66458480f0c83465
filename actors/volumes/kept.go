package volumes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// lastWord is the most that is ever read of a termination log, in bytes: its end.
const lastWord = 4096

// cutKept frees the disk space of the files that the agent keeps for a finished pod, whose folder stays until the pod is
// removed. It removes etc-hosts and truncates termination logs. No container of the pod is running.
func cutKept(root *safepath.Root) error {
	err := kinds.IgnoreAbsent(root.Unlink("etc-hosts"))
	const logs = "containers"
	containers, namesErr := root.Names(logs)
	if namesErr != nil {
		return errors.Join(err, kinds.IgnoreAbsent(namesErr))
	}
	for _, c := range containers {
		attempts, namesErr := root.Names(path.Join(logs, c))
		err = errors.Join(err, kinds.IgnoreAbsent(namesErr))
		for _, a := range attempts {
			if cutErr := cutLog(root, path.Join(logs, c, a)); cutErr != nil {
				err = errors.Join(err, fmt.Errorf("the termination log of container %s: %w", c, cutErr))
			}
		}
	}
	return err
}

// cutLog truncates a file to its end of lastWord bytes. A shorter file is left as it is.
func cutLog(root *safepath.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() <= lastWord {
		return kinds.IgnoreAbsent(err)
	}
	f, err := root.OpenBeneath(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	end := make([]byte, lastWord)
	n, err := f.ReadAt(end, info.Size()-lastWord)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(end[:n], 0)
		}
	}
	return errors.Join(err, f.Close())
}
