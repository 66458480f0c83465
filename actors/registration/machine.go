package registration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/cgroups"
)

// Machine is what the node has and is. Sizes are in bytes.
type Machine struct {
	CPUs         int
	Memory, Swap int64
	// Disk is the size of the file system of the root folder; 0: not known.
	Disk int64
	// HugePages has the bytes in huge pages by the size of a page; sizes that the kernel knows and has none of too.
	HugePages map[int64]int64
	// The rest is empty where the machine does not tell.
	MachineID, SystemUUID, BootID, Kernel, OSImage string
}

// Places are where the machine is read.
type Places struct {
	Proc, Sys, Etc, Lib string // "/proc", "/sys", "/etc", "/var/lib"
	// RootDir is the agent's folder, whose file system is the node's.
	RootDir string
}

// HostPlaces are those of this machine.
func HostPlaces(rootDir string) Places {
	return Places{Proc: "/proc", Sys: "/sys", Etc: "/etc", Lib: "/var/lib", RootDir: rootDir}
}

// Read reads the machine. With an error, what could be read is there all the same.
func (p Places) Read() (Machine, error) {
	m := Machine{
		CPUs:       cgroups.OnlineCPUs(p.Sys),
		MachineID:  firstOf(filepath.Join(p.Etc, "machine-id"), filepath.Join(p.Lib, "dbus/machine-id")),
		SystemUUID: firstOf(filepath.Join(p.Sys, "class/dmi/id/product_uuid"), filepath.Join(p.Proc, "device-tree/system-id"), filepath.Join(p.Proc, "device-tree/vm,uuid"), filepath.Join(p.Etc, "machine-id")),
		BootID:     firstOf(filepath.Join(p.Proc, "sys/kernel/random/boot_id")),
		Kernel:     firstOf(filepath.Join(p.Proc, "sys/kernel/osrelease")),
		OSImage:    p.osImage(),
	}
	var problems []error
	var err error
	if m.Memory, m.Swap, err = p.memory(); err != nil {
		problems = append(problems, err)
	}
	if m.HugePages, err = p.hugePages(); err != nil {
		problems = append(problems, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.RootDir, &fs); err != nil {
		problems = append(problems, fmt.Errorf("the size of the disk of %s: %w", p.RootDir, err))
	} else {
		m.Disk = int64(fs.Blocks) * fs.Frsize //nolint:gosec // a disk's size
	}
	return m, errors.Join(problems...)
}

// firstOf is what the first file holds that is there, in one line.
func firstOf(paths ...string) string {
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
		}
	}
	return ""
}

// osImage is the distribution's name, as os-release(5) has it.
func (p Places) osImage() string {
	text := firstOf(filepath.Join(p.Etc, "os-release"), "/usr/lib/os-release")
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

func (p Places) memory() (total, swap int64, err error) {
	text, err := os.ReadFile(filepath.Join(p.Proc, "meminfo"))
	if err != nil {
		return 0, 0, fmt.Errorf("the machine's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		switch {
		case err != nil:
		case key == "MemTotal":
			total = kilobytes << 10
		case key == "SwapTotal":
			swap = kilobytes << 10
		}
	}
	if total == 0 {
		return 0, 0, errors.New("the machine's memory: /proc/meminfo does not tell")
	}
	return total, swap, nil
}

func (p Places) hugePages() (map[int64]int64, error) {
	dirs, err := filepath.Glob(filepath.Join(p.Sys, "kernel/mm/hugepages/hugepages-*kB"))
	if err != nil {
		return nil, err
	}
	out := map[int64]int64{}
	for _, dir := range dirs {
		size, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			return out, fmt.Errorf("huge pages: %w", err)
		}
		count, err := strconv.ParseInt(firstOf(filepath.Join(dir, "nr_hugepages")), 10, 64)
		if err != nil {
			return out, fmt.Errorf("huge pages: %w", err)
		}
		out[size<<10] = count * size << 10
	}
	return out, nil
}

// goos and goarch are reported as the node's, and are labels of it.
const (
	goos   = runtime.GOOS
	goarch = runtime.GOARCH
)
