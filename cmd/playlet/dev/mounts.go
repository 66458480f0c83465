package dev

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point   string
	kind    string   // of file system
	options []string // of the super block
}

// mounts lists those of this process's namespace, in the order they were made.
func mounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data))
}

// parseMounts reads lines as in proc_pid_mountinfo(5): six fields, any number of optional ones, a dash, three more.
func parseMounts(info string) ([]mount, error) {
	var out []mount
	for line := range strings.Lines(info) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 6 || len(after) < 2 {
			return nil, fmt.Errorf("a line of mountinfo of %q", line)
		}
		m := mount{point: unescape(before[4]), kind: after[0]}
		if len(after) > 2 {
			m.options = strings.Split(after[2], ",")
		}
		out = append(out, m)
	}
	return out, nil
}

// unescape undoes the octal escapes of blanks and backslashes in a path.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// refuseMounts guards a removal: what is mounted below would be emptied too.
func refuseMounts(dir string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.point == dir || strings.HasPrefix(m.point, dir+"/") {
			return fmt.Errorf("%s is not removed: something is mounted on %s", dir, m.point)
		}
	}
	return nil
}

const plainMount = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// ownMounts makes this process's new mount namespace one that nothing leaves, while what the machine unmounts goes here
// too; and /proc one of the new PID namespace.
func ownMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cutting off mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", plainMount, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

// privateFolders are written to by containerd, its shims and CNI whatever they are told, and would be shared with a
// containerd of the machine. Here, each is one of our own that forgets.
var privateFolders = []string{"/run/containerd", "/var/lib/cni"}

// coverFolders mounts the private folders, and makes all mounts shared within the namespace: a pod may ask for
// propagation.
func coverFolders() error {
	for _, dir := range privateFolders {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=711"); err != nil {
			return fmt.Errorf("covering %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	return nil
}
