package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// process is one of the machine's.
type process struct {
	pid  int
	name string
}

// processes are all that can be seen, and ours not.
func (m *Machine) processes() []process {
	dirs, err := filepath.Glob(filepath.Join(m.Proc, "[0-9]*"))
	if err != nil {
		return nil
	}
	var out []process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if name, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil { // gone meanwhile otherwise
			out = append(out, process{pid, strings.TrimSpace(string(name))})
		}
	}
	return out
}

func (m *Machine) pid(p process, elements ...string) string {
	return filepath.Join(append([]string{m.Proc, strconv.Itoa(p.pid)}, elements...)...)
}

// opens says whether a process has a file open whose descriptor links to this.
func (m *Machine) opens(p process, link string) bool {
	fds, err := os.ReadDir(m.pid(p, "fd"))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if to, err := os.Readlink(m.pid(p, "fd", fd.Name())); err == nil && to == link {
			return true
		}
	}
	return false
}

// holder finds the process that holds the flock(2) on a file, by /proc/locks: to try the lock would be to hold it.
func (m *Machine) holder(path string) (process, bool) {
	path, err := filepath.EvalSymlinks(path) // as descriptors have it
	if err != nil {
		return process{}, false
	}
	info, err := os.Stat(path)
	if err != nil {
		return process{}, false
	}
	stat, isStat := info.Sys().(*syscall.Stat_t)
	text, err := os.ReadFile(filepath.Join(m.Proc, "locks"))
	if err != nil || !isStat {
		return process{}, false
	}
	inode := ":" + strconv.FormatUint(stat.Ino, 10)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		p := process{pid: pid}
		if name, err := os.ReadFile(m.pid(p, "comm")); err == nil {
			p.name = strings.TrimSpace(string(name))
		}
		// The inode's number may be another file system's; what the process has open tells.
		if m.opens(p, path) {
			return p, true
		}
	}
	return process{}, false
}
