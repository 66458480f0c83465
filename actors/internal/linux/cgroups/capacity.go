package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/linux/meminfo"
)

// OnlineCPUs returns the online CPUs of the machine by number, read from "/sys". The CPU affinity of the agent does not matter:
// pods may run on all CPUs.
func OnlineCPUs(sysfs string) cpuset.CPUSet {
	if text, err := os.ReadFile(filepath.Join(sysfs, "devices/system/cpu/online")); err == nil {
		if set, err := cpuset.Parse(strings.TrimSpace(string(text))); err == nil && set.Size() > 0 {
			return set
		}
	}
	var set []int
	for i := range runtime.NumCPU() {
		set = append(set, i)
	}
	return cpuset.New(set...)
}

// ReadCapacity reads the present capacity of the machine from "/sys" and "/proc". CPUs and memory of a virtual machine can change
// while it runs, and the Node reports the change.
func ReadCapacity(sysfs, procfs string) (Capacity, error) {
	memory, err := meminfo.Read(procfs)
	if err != nil {
		return Capacity{}, err
	}
	c := Capacity{Memory: memory.Total, MilliCPU: int64(OnlineCPUs(sysfs).Size()) * 1000}
	// The kernel enforces the lower of the two limits.
	for _, file := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		n, err := readNumber(filepath.Join(procfs, file))
		if err != nil {
			return Capacity{}, fmt.Errorf("how many processes there may be: %w", err)
		}
		if c.PIDs == 0 || n < c.PIDs {
			c.PIDs = n
		}
	}
	return c, nil
}

func readNumber(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
