package oomkill

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Counts reports kills if the kernel's log cannot be read, as in a container. It reads the machine's counter (oom_kill of
// /proc/vmstat, proc(5)) every two seconds. After a change, the counters of the pods' cgroups identify the containers
// (memory.events, cgroup-v2.rst; memory.oom_control, cgroup-v1/memory.rst). The runtime reports kills in cgroups removed by
// then, since their containers have ended. It is safe for concurrent use.
type Counts struct {
	// Proc and Cgroups are their mount points.
	Proc, Cgroups string
	// Kubepods returns the path of the cgroup of all pods.
	Kubepods func() string
	// Every is the interval between checks; 0: 2 s.
	Every time.Duration

	mu     sync.Mutex
	total  string
	late   bool             // the machine's number changed at the last check: a cgroup's may have followed it
	groups map[string]count // the counts at that time, by path; nil: not read yet
	found  []Kill
}

// count holds the counters of a cgroup.
type count struct {
	kills  uint64 // processes killed in it
	limits uint64 // times that its limit could not be kept; on v1 also without a kill
}

// Next waits for the next kill in a container of a pod. It returns an error when ctx ends.
func (c *Counts) Next(ctx context.Context) (Kill, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.look(); err != nil {
			return Kill{}, err
		}
		if len(c.found) > 0 {
			next := c.found[0]
			c.found = c.found[1:]
			return next, nil
		}
		select {
		case <-ctx.Done():
			return Kill{}, ctx.Err()
		case <-time.After(cmp.Or(c.Every, 2*time.Second)):
		}
	}
}

func (c *Counts) look() error {
	total, err := values(filepath.Join(c.Proc, "vmstat"))
	if err == nil && total["oom_kill"] == "" {
		err = errors.New("the kernel does not count the processes that it ends") // before 4.13
	}
	if err != nil {
		return err
	}
	changed := total["oom_kill"] != c.total
	if !changed && !c.late {
		return nil
	}
	now, top := map[string]count{}, c.Kubepods()
	if top == "" {
		return errors.New("pods have no cgroup of their own")
	}
	if err := c.read(now, top, 0); err != nil {
		return err
	}
	for _, group := range slices.Sorted(maps.Keys(now)) {
		if is, was := now[group].kills, c.groups[group].kills; c.groups != nil && is > was && isPod(path.Dir(group)) {
			c.found = append(c.found, Kill{Group: group, Limited: c.limited(group, now), Times: is - was})
		}
	}
	c.late, c.total, c.groups = changed, total["oom_kill"], now
	return nil
}

// limited returns the nearest cgroup, from this one up, that met its limit since the last kill; empty: none.
func (c *Counts) limited(group string, now map[string]count) string {
	for ; len(group) > 1; group = path.Dir(group) {
		if now[group].limits > c.groups[group].limits {
			return group
		}
	}
	return ""
}

// isPod reports whether a cgroup's path is a pod's, with either driver.
func isPod(group string) bool {
	name := path.Base(group)
	return strings.HasPrefix(name, "pod") || strings.Contains(name, "-pod")
}

// read reads the counters of kubepods, classes, pods and containers. It skips cgroups that containers made.
func (c *Counts) read(out map[string]count, group string, depth int) error {
	dir, old := filepath.Join(c.Cgroups, "memory", group), true
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		dir, old = filepath.Join(c.Cgroups, group), false
		entries, err = os.ReadDir(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed, or does not exist yet
	}
	if err != nil {
		return err
	}
	var is count
	if old {
		is.kills, is.limits = number(dir, "memory.oom_control", "oom_kill"), number(dir, "memory.failcnt", "")
	} else {
		is.kills, is.limits = number(dir, "memory.events", "oom_kill"), number(dir, "memory.events", "oom")
	}
	out[group] = is
	if isPod(path.Dir(group)) || depth > 2 {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := c.read(out, path.Join(group, e.Name()), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// number returns the value of a cgroup's file; 0 if the file or the cgroup is absent.
func number(dir, file, key string) uint64 {
	all, _ := values(filepath.Join(dir, file))
	n, _ := strconv.ParseUint(all[key], 10, 64)
	return n
}

// values returns the values of a file with a key and a value per line. A file with only a value has an empty key.
func values(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			key, value = "", key
		}
		out[key] = value
	}
	return out, nil
}
