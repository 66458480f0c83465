package cpus

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/cpus/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/statefile"
	"github.com/playlet-dev/playlet/cri/translate"
)

// The policies [cpuManagerPolicy].
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

// File is the name of the checkpoint in the root folder, the kubelet's.
const File = "cpu_manager_state"

// Config configures a Manager.
type Config struct {
	RootDir string
	Policy  string            // [cpuManagerPolicy]
	Options map[string]string // [cpuManagerPolicyOptions]
	// Enabled reports whether options of a stage, Alpha or Beta, are enabled.
	Enabled func(stage string) bool
	// Topology returns the machine's CPUs. Only the static policy calls it.
	Topology func() (Topology, error)
	// Reserved are the CPUs of reservedSystemCPUs; Count is the reserved CPU time, rounded up.
	Reserved cpuset.CPUSet
	Count    int
	// Limited keeps the CPU quota of containers with exclusive CPUs [gate DisableCPUQuotaWithExclusiveCPUs off].
	Limited bool
	// Idle reports that no container runs, e.g. after a boot; nil: unknown. Then a checkpoint of other CPUs is replaced.
	Idle func() bool
	Log  *slog.Logger
}

// Manager holds the exclusive CPUs of the node's containers. It is safe for concurrent use. Only Allocate and Close wait for the
// disk.
type Manager struct {
	policy  string
	static  *Static // nil: the policy none
	limited bool
	file    *statefile.File[checkpoint.Data]

	mu     sync.Mutex
	given  Assignments
	shared string            // the CPUs of all other containers
	names  map[string]string // of pods by UID, as far as they are known
}

// Open reads the checkpoint. An error means that the agent cannot start: the configuration does not fit the machine, or the
// checkpoint is of another policy, or of other CPUs while pods run. These have to end first, as with the kubelet.
func Open(c Config) (*Manager, error) {
	m := &Manager{policy: c.Policy, limited: c.Limited, given: Assignments{}}
	var err error
	if m.static, err = c.static(); err != nil {
		return nil, err
	}
	var data checkpoint.Data
	if m.file, data, err = statefile.Open(c.format(m.static), m.data(Assignments{})); err != nil {
		return nil, err
	}
	if m.static != nil {
		m.show(data.Given)
	}
	return m, nil
}

// checkpointRemedy is the way to start an agent that refuses the checkpoint.
const checkpointRemedy = "drain this node and remove the file before the agent is started again, or configure " +
	"cpuManagerPolicy, its options and the reserved CPUs as before"

// Check reports in advance whether Open refuses to start, or replaces the checkpoint; see statefile.Check.
func Check(c Config) (refused, replaced error) {
	static, err := c.static()
	if err != nil {
		return err, nil
	}
	return statefile.Check(c.format(static))
}

// format describes the checkpoint. It does not fit if it is of another policy or other CPUs.
func (c Config) format(static *Static) statefile.Format[checkpoint.Data] {
	return statefile.Format[checkpoint.Data]{
		Path: filepath.Join(c.RootDir, File), About: "exclusive CPUs", Remedy: checkpointRemedy, Log: c.Log,
		Encode: checkpoint.Encode, Decode: checkpoint.Decode, Binding: static != nil,
		Fits: func(d checkpoint.Data) error {
			switch {
			case d.Policy != c.Policy:
				return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", c.Policy, d.Policy)
			case static == nil:
				return nil
			}
			err := static.Restore(d.Shared, d.Given)
			if err != nil && c.Idle != nil && c.Idle() {
				err = &statefile.StaleError{Err: err}
			}
			return err
		},
	}
}

// static returns the static policy; nil: the policy none.
func (c Config) static() (*Static, error) {
	switch c.Policy {
	case PolicyNone:
		if len(c.Options) > 0 {
			return nil, fmt.Errorf("cpuManagerPolicyOptions %v: the policy none has no options", c.Options)
		}
		return nil, nil
	case PolicyStatic:
		static, err := c.newStatic()
		if err != nil {
			return nil, fmt.Errorf("cpuManagerPolicy static: %w", err)
		}
		return &static, nil
	default:
		return nil, fmt.Errorf("cpuManagerPolicy: unknown policy: %q", c.Policy)
	}
}

func (c Config) newStatic() (Static, error) {
	options, err := ParseOptions(c.Options, c.Enabled)
	if err != nil {
		return Static{}, err
	}
	topology, err := c.Topology()
	if err != nil {
		return Static{}, err
	}
	return NewStatic(topology, c.Reserved, c.Count, options)
}

// Close waits for writes in progress.
func (m *Manager) Close() { m.file.Close() }

// Static reports whether containers can have exclusive CPUs.
func (m *Manager) Static() bool { return m.static != nil }

// change sets the assignments and schedules them for the next write. The caller holds mu.
func (m *Manager) change(g Assignments) {
	m.file.Set(m.data(g))
	m.show(g)
}

func (m *Manager) data(g Assignments) checkpoint.Data {
	out := checkpoint.Data{Policy: m.policy, Given: g}
	if m.static != nil {
		out.Shared = m.static.Shared(g)
	}
	return out
}

// show sets the assignments. The caller holds mu, or is alone.
func (m *Manager) show(g Assignments) {
	m.given = g
	all, shared := g.All(), m.static.Shared(g)
	metrics.CPUsAssigned(shared.Difference(m.static.reserved).Size(), all.Size(), m.static.topology.PerNode(all))
	if shared.IsEmpty() { // with strict-cpu-reservation; an empty set would be all CPUs
		shared = m.static.reserved
	}
	m.shared = shared.String()
}

// Retain releases the CPUs of all pods but the holders, which are named by UID. It does not wait for the disk.
func (m *Manager) Retain(holders map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names = holders
	left := m.given.Keep(func(uid string) bool { _, holds := holders[uid]; return holds })
	if len(left) == len(m.given) {
		return
	}
	m.change(left)
	m.file.FlushLater()
}

// Release releases the CPUs of one pod. It does not wait for the disk.
func (m *Manager) Release(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.given.Keep(func(other string) bool { return other != uid }); len(left) < len(m.given) {
		m.change(left)
		m.file.FlushLater()
	}
}

// Lacks reports whether the pod asks for exclusive CPUs and has none.
func (m *Manager) Lacks(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.static != nil && Asks(pod) && len(m.given[string(pod.UID)]) == 0
}

// Pin returns the CPUs that a container runs on.
func (m *Manager) Pin(uid, container string) translate.Pin {
	if m.static == nil {
		return translate.Pin{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, exclusive := m.given[uid][container]; exclusive {
		return translate.Pin{CPUs: set.String(), Unlimited: !m.limited}
	}
	return translate.Pin{CPUs: m.shared}
}

// Exclusive returns the CPUs that a container has to itself, in order.
func (m *Manager) Exclusive(uid, container string) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return numbers(m.given[uid][container])
}

// Allocatable returns the CPUs that containers can have to themselves, in order.
func (m *Manager) Allocatable() []int64 {
	if m.static == nil {
		return nil
	}
	return numbers(m.static.Allocatable())
}

func numbers(set cpuset.CPUSet) (out []int64) {
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}
