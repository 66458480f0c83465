package eviction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/eviction/memwatch"
	"github.com/playlet-dev/playlet/actors/internal/linux/meminfo"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

// ImageService locates the images; *cri.Client implements it.
type ImageService interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Places are the paths to measure.
type Places struct {
	Proc, Cgroups string // "/proc", "/sys/fs/cgroup"
	// RootDir is the agent's folder; its file system is the node's. PodLogsDir has the logs.
	RootDir, PodLogsDir string
	Images              ImageService
	// Kubepods is the path of the cgroup of all pods, relative to a controller's root; nil or empty: pods have none.
	Kubepods func() string
}

// Meter measures at places. It is safe for concurrent use.
type Meter struct {
	Places
	statfs func(path string) (disk, error)
	arm    func(cgroups, proc string, list []memwatch.Threshold) memoryWatch

	mu    sync.Mutex
	disks map[string]*overdue.Reader[disk] // by path
	// imageDir and containerDir are the folders of images and writable layers that the runtime last reported.
	imageDir, containerDir string
}

// Meter returns the meter of these places.
func (p Places) Meter() *Meter {
	return &Meter{Places: p, statfs: statfs, arm: arm, disks: map[string]*overdue.Reader[disk]{}}
}

// Measure measures all signals.
func (p *Meter) Measure(ctx context.Context) Measurement {
	m := Measurement{Readings: map[Signal]Reading{}, Failed: map[Signal]error{}}
	note := func(s Signal, r Reading, err error) {
		if err != nil {
			m.Failed[s] = err
			return
		}
		m.Readings[s] = r
	}
	p.measureMemory(note)
	var node, logs disk
	var nodeErr, logsErr error
	var measuring workGroup
	measuring.Go(func() { node, nodeErr = p.disk(ctx, p.RootDir) })
	measuring.Go(func() { logs, logsErr = p.disk(ctx, p.PodLogsDir) })
	images, containers, err := p.runtimeDisks(ctx)
	note(ImageFsAvailable, images.space, err)
	noteInodes(&m, ImageFsInodesFree, images.inodes, err)
	measuring.Wait()
	note(NodeFsAvailable, node.space, nodeErr)
	noteInodes(&m, NodeFsInodesFree, node.inodes, nodeErr)
	if logsErr != nil { // it has no signal of its own
		logs = node
	}
	if err == nil && nodeErr == nil {
		m.Layout = layoutOf(node, images, containers, logs)
	}
	if m.Layout.Containers == onContainerFs {
		note(ContainerFsAvailable, containers.space, nil)
		noteInodes(&m, ContainerFsInodesFree, containers.inodes, nil)
	}
	r, err := p.pids()
	note(PIDAvailable, r, err)
	return m
}

// MeasureMemory measures only memory. It reads two small files and never waits for a disk.
func (p *Meter) MeasureMemory(context.Context) Measurement {
	m := Measurement{Readings: map[Signal]Reading{}, Failed: map[Signal]error{}}
	p.measureMemory(func(s Signal, r Reading, err error) {
		if err == nil {
			m.Readings[s] = r
		}
	})
	return m
}

// measureOthers measures the disks and tasks with levels. It uses the known locations and does not call the runtime.
func (p *Meter) measureOthers(ctx context.Context, levels map[Signal]int64) map[Signal]Reading {
	p.mu.Lock()
	images, containers := p.imageDir, p.containerDir
	p.mu.Unlock()
	out := map[Signal]Reading{}
	for _, fs := range []struct {
		path          string
		space, inodes Signal
	}{
		{p.RootDir, NodeFsAvailable, NodeFsInodesFree}, {images, ImageFsAvailable, ImageFsInodesFree},
		{containers, ContainerFsAvailable, ContainerFsInodesFree},
	} {
		_, space := levels[fs.space]
		if _, inodes := levels[fs.inodes]; fs.path == "" || !space && !inodes {
			continue
		}
		if d, err := p.disk(ctx, fs.path); err == nil {
			out[fs.space] = d.space
			if d.inodes.Capacity > 0 {
				out[fs.inodes] = d.inodes
			}
		}
	}
	if _, tasks := levels[PIDAvailable]; tasks {
		if r, err := p.pids(); err == nil {
			out[PIDAvailable] = r
		}
	}
	return out
}

func (p *Meter) measureMemory(note func(Signal, Reading, error)) {
	r, err := p.memory()
	note(MemoryAvailable, r, err)
	if r, err = p.allocatable(); err != nil || r.Capacity > 0 {
		note(AllocatableMemoryAvailable, r, err)
	}
}

// noteInodes skips a file system that does not count inodes, such as btrfs: it never runs out of them.
func noteInodes(m *Measurement, s Signal, r Reading, err error) {
	switch {
	case err != nil:
		m.Failed[s] = err
	case r.Capacity > 0:
		m.Readings[s] = r
	}
}

// memory returns the machine's memory minus the working set of all processes: their usage without inactive file pages. It is the
// kubelet's measure, not the kernel's MemAvailable. Huge pages do not count: the kernel keeps them for their own users, and no
// working set includes them (kubernetes/kubernetes#137984).
func (p Places) memory() (Reading, error) {
	machine, err := meminfo.Read(p.Proc)
	if err != nil {
		return Reading{}, err
	}
	used, err := p.workingSet()
	if err != nil {
		return Reading{}, err
	}
	return Reading{max(machine.Total-used-machine.HugePages, 0), machine.Total}, nil
}

// workingSet returns the root cgroup's working set. On version 2 the root counts only its own pages.
func (p Places) workingSet() (int64, error) {
	if stat, err := fields(filepath.Join(p.Cgroups, "memory.stat")); err == nil {
		return max(stat["anon"]+stat["file"]-stat["inactive_file"], 0), nil
	}
	used, err := p.workingSetV1("")
	if err != nil {
		return 0, fmt.Errorf("no cgroup tells the memory in use: %w", err)
	}
	return used, nil
}

func (p Places) workingSetV1(group string) (int64, error) {
	dir := filepath.Join(p.Cgroups, "memory", group)
	stat, err := fields(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	used, err := number(filepath.Join(dir, "memory.usage_in_bytes"))
	return max(used-stat["total_inactive_file"], 0), err
}

// allocatable returns the remaining memory of the pods' common limit. The capacity is 0 if there is no limit, or no such cgroup
// yet.
func (p Places) allocatable() (Reading, error) {
	group := ""
	if p.Kubepods != nil {
		group = p.Kubepods()
	}
	if group == "" {
		return Reading{}, nil
	}
	dir, limit, v2 := filepath.Join(p.Cgroups, group), "memory.max", true
	if _, err := os.Stat(filepath.Join(dir, limit)); err != nil {
		dir, limit, v2 = filepath.Join(p.Cgroups, "memory", group), "memory.limit_in_bytes", false
	}
	text, err := os.ReadFile(filepath.Join(dir, limit))
	if errors.Is(err, os.ErrNotExist) {
		return Reading{}, nil
	}
	if err != nil {
		return Reading{}, err
	}
	capacity, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || capacity >= unlimitedV1 { // "max"
		return Reading{}, nil //nolint:nilerr // no limit
	}
	used, err := p.workingSetV1(group)
	if v2 {
		var stat map[string]int64
		if stat, err = fields(filepath.Join(dir, "memory.stat")); err == nil {
			used, err = number(filepath.Join(dir, "memory.current"))
			used = max(used-stat["inactive_file"], 0)
		}
	}
	return Reading{max(capacity-used, 0), capacity}, err
}

// unlimitedV1 exceeds any real limit: without one, cgroups of version 1 have the largest number, rounded to pages.
const unlimitedV1 = 1 << 62

// pids returns how many more tasks the kernel permits, by the lower of its limits.
func (p Places) pids() (Reading, error) {
	limit := int64(math.MaxInt64)
	for _, file := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		n, err := number(filepath.Join(p.Proc, file))
		if err != nil {
			return Reading{}, err
		}
		limit = min(limit, n)
	}
	text, err := os.ReadFile(filepath.Join(p.Proc, "loadavg"))
	if err != nil {
		return Reading{}, err
	}
	all := strings.Fields(string(text)) // 0.20 0.18 0.12 1/80 11206; proc_loadavg(5)
	if len(all) < 4 {
		return Reading{}, errors.New("/proc/loadavg does not tell how many tasks there are")
	}
	_, tasks, _ := strings.Cut(all[3], "/")
	running, err := strconv.ParseInt(tasks, 10, 64)
	if err != nil {
		return Reading{}, fmt.Errorf("/proc/loadavg: %w", err)
	}
	return Reading{max(limit-running, 0), limit}, nil
}

// fields returns the numbers of a file with lines of a name and a number.
func fields(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) >= 2 {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				out[words[0]] = n
			}
		}
	}
	return out, nil
}

func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}
