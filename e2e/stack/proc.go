package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is one process of our PID namespace, as it was when it was looked at.
type process struct {
	pid     int
	cmdline string // arguments joined by blanks; empty for a zombie
	group   string // its path in the first cgroup hierarchy where that is not the root
}

// processes lists the processes of our PID namespace, but zombies and those that end meanwhile.
func processes() ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var list []process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(args) == 0 {
			continue
		}
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue
		}
		cmdline := strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))
		list = append(list, process{pid, cmdline, deepest(string(groups))})
	}
	return list, nil
}

// deepest gives the first path of /proc/PID/cgroup that is not where the test itself runs. The lines are
// "number:controllers:path"; with v2 alone, the test runs in /init.
func deepest(groups string) string {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[2] != "/" && fields[2] != "/init" {
			return fields[2]
		}
	}
	return ""
}

// awaitStopped waits until SIGSTOP has reached every thread of a process.
func awaitStopped(pid int) error {
	for begun := time.Now(); time.Since(begun) < waitLimit; time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		moving := len(files) == 0
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				continue // a thread that ended
			}
			// The state is the field after the name, which is in parentheses and may hold anything.
			_, after, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
			moving = moving || !strings.HasPrefix(after, "T")
		}
		if !moving {
			return nil
		}
	}
	return fmt.Errorf("process %d does not stop", pid)
}
