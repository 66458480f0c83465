// Package cgroupstest provides cgroups in memory, for tests.
package cgroupstest

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
)

// Memory implements cgroups.Groups in memory. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	groups map[string]cgroups.Values
	procs  map[string][]int
	uses   map[string]int64
	fail   error
	deaf   bool
}

// New returns a Memory without groups.
func New() *Memory {
	return &Memory{groups: map[string]cgroups.Values{}, procs: map[string][]int{}, uses: map[string]int64{}}
}

// Apply implements cgroups.Groups.
func (m *Memory) Apply(name cgroups.Name, systemd bool, v cgroups.Values) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	p := name.Path(systemd)
	for above := path.Dir(p); above != "/"; above = path.Dir(above) {
		if _, ok := m.groups[above]; !ok {
			m.groups[above] = cgroups.Values{}
		}
	}
	m.groups[p] = v
	return nil
}

// Set implements cgroups.Groups.
func (m *Memory) Set(name cgroups.Name, systemd bool, v cgroups.Values) error {
	if _, there := m.Values()[name.Path(systemd)]; !there {
		return fs.ErrNotExist
	}
	return m.Apply(name, systemd, v)
}

// Remove implements cgroups.Groups.
func (m *Memory) Remove(name cgroups.Name, systemd bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	p := name.Path(systemd)
	maps.DeleteFunc(m.groups, func(at string, _ cgroups.Values) bool { return at == p || strings.HasPrefix(at, p+"/") })
	return nil
}

// Children implements cgroups.Groups.
func (m *Memory) Children(name cgroups.Name, systemd bool) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for at := range m.groups {
		if path.Dir(at) == name.Path(systemd) {
			names = append(names, path.Base(at))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Uses implements cgroups.Groups.
func (m *Memory) Uses(name cgroups.Name, systemd bool) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uses[name.Path(systemd)], nil
}

// Use sets the memory usage of a group, in bytes.
func (m *Memory) Use(at string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uses[at] = bytes
}

// Kill implements cgroups.Groups.
func (m *Memory) Kill(name cgroups.Name, systemd bool) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.procs[name.Path(systemd)]
	if !m.deaf {
		delete(m.procs, name.Path(systemd))
	}
	return found, nil
}

// Enter implements cgroups.Groups.
func (m *Memory) Enter(name cgroups.Name, pids ...int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for at, there := range m.procs {
		m.procs[at] = slices.DeleteFunc(there, func(pid int) bool { return slices.Contains(pids, pid) })
	}
	at := name.Cgroupfs()
	there := m.groups[at] // a new group has no values
	m.groups[at], m.procs[at] = there, append(m.procs[at], pids...)
	return nil
}

// Ungrouped implements cgroups.Groups.
func (m *Memory) Ungrouped() ([]int, error) { return m.Processes("/"), nil }

// Processes returns the processes in a group.
func (m *Memory) Processes(at string) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.procs[at])
}

// Deafen makes processes ignore signals.
func (m *Memory) Deafen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf = true
}

// Put creates a group with these processes in it.
func (m *Memory) Put(at string, pids ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[at], m.procs[at] = cgroups.Values{}, pids
}

// Fail makes all calls that change groups fail with err, until it is called with nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Values returns the values of all groups by path.
func (m *Memory) Values() map[string]cgroups.Values {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.groups)
}
