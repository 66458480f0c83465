package numamemory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/numamemory/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/statefile"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
)

// The policies [memoryManagerPolicy].
const (
	PolicyNone   = kubeletconfig.NoneMemoryManagerPolicy
	PolicyStatic = kubeletconfig.StaticMemoryManagerPolicy
)

// File is the name of the checkpoint in the root folder, the kubelet's.
const File = "memory_manager_state"

const remedy = "drain this node and remove the file before the agent is started again, or configure memoryManagerPolicy and " +
	"reservedMemory as before"

// Config configures a Manager.
type Config struct {
	RootDir  string
	Policy   string                            // [memoryManagerPolicy]
	Reserved []kubeletconfig.MemoryReservation // [reservedMemory]
	// Withheld is the memory that the node withholds from pods.
	Withheld resource.Quantity
	// Nodes returns the machine's NUMA nodes. Only the static policy calls it.
	Nodes func() ([]cadvisor.Node, error)
	// Idle reports that no container runs, e.g. after a boot; nil: unknown. Then a checkpoint of other memory is replaced.
	Idle func() bool
	Log  *slog.Logger
}

// Manager holds the memory of the node's containers by NUMA node. It is safe for concurrent use. Only Commit and Close wait for
// the disk.
type Manager struct {
	static *Static // nil: the policy None
	file   *statefile.File[checkpoint.Data]

	mu    sync.Mutex
	given Assignments
}

// Open reads the checkpoint. An error means that the agent cannot start: the reservations do not fit the machine, or the
// checkpoint is of another policy, or of other memory while pods run.
func Open(c Config) (*Manager, error) {
	static, err := c.static()
	if err != nil {
		return nil, err
	}
	m := &Manager{static: static}
	initial := checkpoint.Data{Policy: c.Policy}
	if static != nil {
		initial = static.data(nil)
	}
	var data checkpoint.Data
	if m.file, data, err = statefile.Open(c.format(static), initial); err != nil {
		return nil, err
	}
	if static != nil {
		m.given = given(data)
	}
	return m, nil
}

// Check reports in advance whether Open refuses to start, or replaces the checkpoint; see statefile.Check.
func Check(c Config) (refused, replaced error) {
	static, err := c.static()
	if err != nil {
		return err, nil
	}
	return statefile.Check(c.format(static))
}

// static returns the static policy; nil: the policy None.
func (c Config) static() (*Static, error) {
	switch c.Policy {
	case PolicyNone:
		return nil, nil
	case PolicyStatic:
		nodes, err := c.Nodes()
		if err != nil {
			return nil, fmt.Errorf("memoryManagerPolicy Static: %w", err)
		}
		machine, err := Discover(nodes, c.Reserved, c.Withheld)
		if err != nil {
			return nil, fmt.Errorf("memoryManagerPolicy Static: %w", err)
		}
		return &Static{machine}, nil
	}
	return nil, fmt.Errorf("memoryManagerPolicy: unknown policy: %q", c.Policy)
}

func (c Config) format(static *Static) statefile.Format[checkpoint.Data] {
	return statefile.Format[checkpoint.Data]{
		Path: filepath.Join(c.RootDir, File), About: "memory by NUMA node", Remedy: remedy, Log: c.Log,
		Encode: checkpoint.Encode, Decode: checkpoint.Decode, Binding: static != nil,
		Fits: func(d checkpoint.Data) error {
			switch {
			case d.Policy != c.Policy:
				return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", c.Policy, d.Policy)
			case static == nil:
				return nil
			}
			err := static.Restore(d)
			if err != nil && c.Idle != nil && c.Idle() {
				err = &statefile.StaleError{Err: err}
			}
			return err
		},
	}
}

// Close waits for writes in progress.
func (m *Manager) Close() { m.file.Close() }

// Static reports whether containers have memory from chosen nodes.
func (m *Manager) Static() bool { return m != nil && m.static != nil }

// change sets the allocations and schedules them for the next write. The caller holds mu.
func (m *Manager) change(g Assignments) {
	m.given = g
	m.file.Set(m.static.data(g))
}

// Retain releases the memory of all pods but the holders, which are named by UID. It does not wait for the disk.
func (m *Manager) Retain(holders map[string]string) {
	m.keep(func(uid string) bool { _, holds := holders[uid]; return holds })
}

// Release releases the memory of one pod. It does not wait for the disk.
func (m *Manager) Release(uid string) { m.keep(func(other string) bool { return other != uid }) }

func (m *Manager) keep(holds func(uid string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.given.Keep(holds); len(left) < len(m.given) {
		m.change(left)
		m.file.FlushLater()
	}
}

// Fit releases the memory of a pod if it has not exactly the memory of its requests: a static pod keeps its UID when its manifest
// changes, and a kubelet drops the memory of init containers that have ended.
func (m *Manager) Fit(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if uid := string(pod.UID); m.given[uid] != nil && !m.given.complete(pod) {
		m.change(m.given.without(uid))
		m.file.FlushLater()
	}
}

// Hints implements the provider of the topology manager: for a container, or for the whole pod if it is nil.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) []topology.Request {
	if m.static == nil || !Asks(pod) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.static.Hints(m.given, pod, c)
}

// Allocate gives a container its memory, if possible from the nodes of the hint. One that has its memory keeps it.
func (m *Manager) Allocate(_ context.Context, pod *v1.Pod, c *v1.Container, hint topology.Result) error {
	if m.static == nil || !Asks(pod) {
		return nil
	}
	metrics.MemoryPinningRequests.WithLabelValues().Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.static.Allocate(m.given, pod, c, hint)
	if _, changed := errors.AsType[topology.ChangedError](err); changed {
		return err
	}
	if err != nil {
		metrics.MemoryPinningErrors.WithLabelValues().Inc()
		return messages.Cause{Code: messages.CauseNoMemory, Detail: m.static.explain(m.given, c)}.Errorf("%w", err)
	}
	m.change(next)
	return nil
}

// Commit writes the allocations to the disk.
func (m *Manager) Commit() error {
	if m.static == nil {
		return nil
	}
	if err := m.file.Flush(); err != nil {
		return fmt.Errorf("failed to write checkpoint file %q: %w", File, err)
	}
	return nil
}

// Lacks reports whether the pod asks for memory from chosen nodes and has none.
func (m *Manager) Lacks(pod *v1.Pod) bool {
	if !m.Static() || !Asks(pod) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.given[string(pod.UID)]) == 0
}

// Nodes returns the NUMA nodes of a container's memory, as "0,2"; empty: it may use all.
func (m *Manager) Nodes(uid, container string) string {
	if !m.Static() {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var nodes topology.Mask
	for _, b := range m.given[uid][container] {
		nodes |= b.Nodes
	}
	var out []string
	for n := range nodes.Nodes() {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ",")
}

// Of returns the memory of a container as the pod resources API has it. It does not block.
func (m *Manager) Of(uid, container string) (out []*podresources.ContainerMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.given[uid][container] {
		out = append(out, b.entry())
	}
	return out
}

// Allocatable returns the memory that containers can have, as the pod resources API has it.
func (m *Manager) Allocatable() (out []*podresources.ContainerMemory) {
	if m.static == nil {
		return nil
	}
	for _, n := range slices.Sorted(maps.Keys(m.static.machine)) {
		types := m.static.machine[n]
		for _, name := range slices.Sorted(maps.Keys(types)) {
			if size := types[name].Allocatable; size > 0 {
				out = append(out, Block{topology.MaskOf(n), name, size}.entry())
			}
		}
	}
	return out
}

func (b Block) entry() *podresources.ContainerMemory {
	out := &podresources.ContainerMemory{MemoryType: string(b.Type), Size: b.Size, Topology: &podresources.TopologyInfo{}}
	for n := range b.Nodes.Nodes() {
		out.Topology.Nodes = append(out.Topology.Nodes, &podresources.NUMANode{ID: int64(n)})
	}
	return out
}
