package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/linux/meminfo"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

// Machine describes the node's hardware and system. Sizes are in bytes.
type Machine struct {
	CPUs         int
	Memory, Swap int64
	// Disk is the size of the file system of the root folder; 0 if unknown.
	Disk int64
	// HugePages holds the bytes in huge pages by page size, zero sizes included.
	HugePages map[int64]int64
	// The following are empty if the machine does not report them.
	MachineID, SystemUUID, BootID, Kernel, OSImage string
}

// Places are the folders from which the machine is read.
type Places struct {
	Proc, Sys, Etc, Lib string // "/proc", "/sys", "/etc", "/var/lib"
	// RootDir is the agent's folder; its file system is the node's file system.
	RootDir string
}

// HostPlaces returns the folders of this machine.
func HostPlaces(rootDir string) Places {
	return Places{Proc: "/proc", Sys: "/sys", Etc: "/etc", Lib: "/var/lib", RootDir: rootDir}
}

// Reader reads the machine for the whole process, so that all parts use the same figures. Safe for concurrent use.
type Reader struct {
	files *overdue.Reader[Machine]
	disk  *overdue.Reader[int64]

	mu   sync.Mutex
	last Machine
}

// readTimeout bounds one reading: a folder may be on a file system that hangs.
const readTimeout = 5 * time.Second

// Reader returns a reader of these places.
func (p Places) Reader() *Reader {
	return &Reader{
		files: overdue.New("the machine", readTimeout, p.files),
		disk:  overdue.New("the size of the disk of "+p.RootDir, readTimeout, p.disk),
	}
}

// Read reads the machine. Along with an error it returns the values read now or before.
func (r *Reader) Read(ctx context.Context) (Machine, error) {
	var disk int64
	var diskErr error
	var both sync.WaitGroup
	both.Go(func() { disk, diskErr = r.disk.Get(ctx) })
	m, err := r.files.Get(ctx)
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diskErr == nil {
		m.Disk = disk
	}
	r.last = m.orElse(r.last)
	return r.last, errors.Join(err, diskErr)
}

// Last returns the last reading; the zero value before the first. It does not block.
func (r *Reader) Last() Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// orElse replaces missing values by the values of an earlier reading.
func (m Machine) orElse(was Machine) Machine {
	if m.Memory == 0 { // the same file has swap
		m.Memory, m.Swap = was.Memory, was.Swap
	}
	if m.HugePages == nil {
		m.HugePages = was.HugePages
	}
	m.CPUs, m.Disk = cmp.Or(m.CPUs, was.CPUs), cmp.Or(m.Disk, was.Disk)
	m.MachineID, m.SystemUUID, m.BootID = cmp.Or(m.MachineID, was.MachineID), cmp.Or(m.SystemUUID, was.SystemUUID),
		cmp.Or(m.BootID, was.BootID)
	m.Kernel, m.OSImage = cmp.Or(m.Kernel, was.Kernel), cmp.Or(m.OSImage, was.OSImage)
	return m
}

// files reads all but the disk. Along with an error it returns the values that could be read.
func (p Places) files() (Machine, error) {
	m := Machine{
		CPUs:      cgroups.OnlineCPUs(p.Sys).Size(),
		MachineID: firstOf(filepath.Join(p.Etc, "machine-id"), filepath.Join(p.Lib, "dbus/machine-id")),
		SystemUUID: firstOf(filepath.Join(p.Sys, "class/dmi/id/product_uuid"), filepath.Join(p.Proc, "device-tree/system-id"),
			filepath.Join(p.Proc, "device-tree/vm,uuid"), filepath.Join(p.Etc, "machine-id")),
		BootID:  firstOf(filepath.Join(p.Proc, "sys/kernel/random/boot_id")),
		Kernel:  firstOf(filepath.Join(p.Proc, "sys/kernel/osrelease")),
		OSImage: p.osImage(),
	}
	memory, memErr := meminfo.Read(p.Proc)
	m.Memory, m.Swap = memory.Total, memory.Swap
	var pagesErr error
	if m.HugePages, pagesErr = p.hugePages(); pagesErr != nil {
		m.HugePages = nil
	}
	return m, errors.Join(memErr, pagesErr)
}

func (p Places) disk() (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(p.RootDir, &fs); err != nil {
		return 0, fmt.Errorf("the size of the disk of %s: %w", p.RootDir, err)
	}
	return int64(fs.Blocks) * fs.Frsize, nil //nolint:gosec // a disk's size
}

// firstOf returns the content of the first file that exists, without surrounding space.
func firstOf(paths ...string) string {
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
		}
	}
	return ""
}

// osImage returns the distribution's name from os-release(5).
func (p Places) osImage() string {
	text := firstOf(filepath.Join(p.Etc, "os-release"), "/usr/lib/os-release")
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
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
