package isolate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Mount is a line of /proc/self/mountinfo.
type Mount struct {
	Point   string
	Type    string   // file system
	Options []string // of the super block
}

// Mounts lists the mounts of this process's namespace in the order they were made.
func Mounts() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []Mount
	for line := range strings.Lines(string(data)) {
		m, err := parseMount(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// parseMount reads a line as in proc_pid_mountinfo(5): six fields, any number of optional ones, a dash, three more.
func parseMount(line string) (Mount, error) {
	left, right, ok := strings.Cut(line, " - ")
	before, after := strings.Fields(left), strings.Fields(right)
	if !ok || len(before) < 6 || len(after) < 2 {
		return Mount{}, fmt.Errorf("mountinfo: %q", line)
	}
	m := Mount{Point: unescape(before[4]), Type: after[0]}
	if len(after) > 2 {
		m.Options = strings.Split(after[2], ",")
	}
	return m, nil
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
