package cpus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/cpus/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// The policies [cpuManagerPolicy].
const (
	PolicyNone   = "none"
	PolicyStatic = "static"
)

const (
	// File is the name of the checkpoint in the root folder, the kubelet's.
	File = "cpu_manager_state"
	// writeTimeout is how long a write of it is awaited.
	writeTimeout = 15 * time.Second
	// maxFile is its largest size in bytes.
	maxFile = 16 << 20
)

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
	Log     *slog.Logger
}

// Manager holds the exclusive CPUs of the node's containers. It is safe for concurrent use. Only Allocate and Close wait for the
// disk.
type Manager struct {
	static  *Static // nil: the policy none
	limited bool
	log     *slog.Logger
	file    *overdue.Writing[Given]
	writes  sync.WaitGroup

	mu     sync.Mutex
	given  Given
	shared string            // the CPUs of all other containers
	names  map[string]string // of pods by UID, as far as they are known
}

// Open reads the checkpoint. An error means that the agent cannot start: the configuration does not fit the machine, or the
// checkpoint is of another policy or other CPUs. Its pods then have to end first, as with the kubelet.
func Open(c Config) (*Manager, error) {
	m := &Manager{limited: c.Limited, log: c.Log, given: Given{}}
	var err error
	if m.static, err = c.policy(); err != nil {
		return nil, err
	}
	path := filepath.Join(c.RootDir, File)
	m.file = overdue.NewWriting("the checkpoint of exclusive CPUs", writeTimeout, func(g Given) error {
		data := checkpoint.Data{Policy: c.Policy, Given: g}
		if m.static != nil {
			data.Shared = m.static.Shared(g)
		}
		text, err := checkpoint.Encode(data)
		if err != nil { // a bug: every value can be encoded
			return err
		}
		return atomicfile.WriteFile(path, text, 0o600)
	})
	if err := m.restore(path, c.Policy); err != nil {
		return nil, &CheckpointError{path, err}
	}
	return m, nil
}

// CheckpointError is the refusal to start with a checkpoint.
type CheckpointError struct {
	Path string
	Err  error
}

// CheckpointRemedy is what ends a CheckpointError.
const CheckpointRemedy = "drain this node and remove the file before the agent is started again, or configure " +
	"cpuManagerPolicy, its options and the reserved CPUs as before"

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("cannot continue with %s: %v: %s", e.Path, e.Err, CheckpointRemedy)
}

func (e *CheckpointError) Unwrap() error { return e.Err }

// Check reports in advance, and changes nothing. refused is the error of Open; replaced is why Open would replace the checkpoint,
// or could not read it, on which no container depends. An absent checkpoint is neither.
func Check(c Config) (refused, replaced error) {
	m := &Manager{log: slog.New(slog.DiscardHandler)}
	if m.static, refused = c.policy(); refused != nil {
		return refused, nil
	}
	path := filepath.Join(c.RootDir, File)
	var data checkpoint.Data
	err := loadInPlace(path, decodeTo(&data))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil && m.static == nil:
		return nil, err
	case err == nil:
		err = m.fits(data, c.Policy)
	}
	if err != nil {
		return &CheckpointError{path, err}, nil
	}
	return nil, nil
}

// decodeTo returns a decoder into data.
func decodeTo(data *checkpoint.Data) func([]byte) error {
	return func(text []byte) (err error) {
		*data, err = checkpoint.Decode(text)
		return err
	}
}

// policy returns the static policy; nil: the policy none.
func (c Config) policy() (*Static, error) {
	switch c.Policy {
	case PolicyNone:
		if len(c.Options) > 0 {
			return nil, fmt.Errorf("cpuManagerPolicyOptions %v: the policy none has no options", c.Options)
		}
		return nil, nil
	case PolicyStatic:
		static, err := c.static()
		if err != nil {
			return nil, fmt.Errorf("cpuManagerPolicy static: %w", err)
		}
		return &static, nil
	default:
		return nil, fmt.Errorf("cpuManagerPolicy: unknown policy: %q", c.Policy)
	}
}

func (c Config) static() (Static, error) {
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

// restore reads the checkpoint, and writes one if there is none. One that cannot be read is set aside under the policy none: no
// container depends on it.
func (m *Manager) restore(path, policy string) error {
	var data checkpoint.Data
	load := atomicfile.LoadText
	if m.static != nil {
		load = loadInPlace
	}
	err := load(path, decodeTo(&data))
	if _, aside := errors.AsType[*atomicfile.UnreadableError](err); aside {
		m.log.Warn("the checkpoint of exclusive CPUs cannot be read, and is replaced", "error", err)
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.change(Given{})
		if err := m.file.Flush(); err != nil {
			m.log.Warn("the checkpoint of exclusive CPUs cannot be written", "error", err)
		}
		return nil
	case err != nil && m.static == nil:
		m.log.Warn("the checkpoint of exclusive CPUs cannot be read", "error", err)
		return nil
	case err != nil:
		return err
	}
	if err := m.fits(data, policy); err != nil || m.static == nil {
		return err
	}
	m.change(data.Given)
	return nil
}

// fits returns an error if the checkpoint is of another policy or other CPUs.
func (m *Manager) fits(data checkpoint.Data, policy string) error {
	switch {
	case data.Policy != policy:
		return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", policy, data.Policy)
	case m.static == nil:
		return nil
	}
	return m.static.Restore(data.Shared, data.Given)
}

// loadInPlace is atomicfile.LoadText without setting an unreadable file aside.
func loadInPlace(path string, decode func([]byte) error) error {
	text, err := atomicfile.ReadFile(path, maxFile)
	if err != nil {
		return err
	}
	return decode(text)
}

// Close waits for writes in progress.
func (m *Manager) Close() { m.writes.Wait() }

// Static reports whether containers can have exclusive CPUs.
func (m *Manager) Static() bool { return m.static != nil }

// change sets the assignments and schedules them for the next write. The caller holds mu, or is alone.
func (m *Manager) change(g Given) {
	m.given = g
	m.file.Set(g)
	if m.static == nil {
		return
	}
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
	m.flush()
}

// Release releases the CPUs of one pod. It does not wait for the disk.
func (m *Manager) Release(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.given.Keep(func(other string) bool { return other != uid }); len(left) < len(m.given) {
		m.change(left)
		m.flush()
	}
}

// flush writes the checkpoint without waiting for the disk.
func (m *Manager) flush() {
	m.writes.Go(func() {
		if err := m.file.Flush(); err != nil {
			m.log.Warn("the checkpoint of exclusive CPUs cannot be written", "error", err)
		}
	})
}

// Allocate gives the containers of a pod their exclusive CPUs, and records that on disk. Containers that have theirs keep them.
// After an error the pod has no CPUs.
func (m *Manager) Allocate(_ context.Context, pod *v1.Pod) error {
	if m.static == nil || !Asks(pod) {
		return nil
	}
	if err := m.allocate(pod); err != nil {
		return err
	}
	err := m.file.Flush()
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(m.given.Keep(func(uid string) bool { return uid != string(pod.UID) }))
	return fmt.Errorf("failed to write checkpoint file %q: %w", File, err)
}

// Lacks reports whether the pod asks for exclusive CPUs and has none.
func (m *Manager) Lacks(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.static != nil && Asks(pod) && len(m.given[string(pod.UID)]) == 0
}

func (m *Manager) allocate(pod *v1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	had, cores := m.given[string(pod.UID)], m.static.options.FullCores
	next, err := m.static.Allocate(m.given, pod)
	if err != nil {
		if len(next[string(pod.UID)]) < len(had) {
			m.change(next)
			m.flush()
		}
		refusal, _ := errors.AsType[Refusal](err)
		metrics.PinningRequests.WithLabelValues().Add(float64(asking(pod, refusal.Container)))
		metrics.PinningErrors.WithLabelValues().Inc()
		if cores {
			metrics.Unaligned.WithLabelValues(metrics.ByContainer, metrics.PhysicalCPU).Inc()
		}
		return m.explained(refusal)
	}
	n := float64(asking(pod, ""))
	metrics.PinningRequests.WithLabelValues().Add(n)
	if cores { // guaranteed by full-pcpus-only
		metrics.Aligned.WithLabelValues(metrics.ByContainer, metrics.PhysicalCPU).Add(n)
	}
	m.change(next)
	for name, set := range next[string(pod.UID)] {
		if _, before := had[name]; !before && len(m.static.topology.sizes(set.List(), cache)) == 1 {
			metrics.Aligned.WithLabelValues(metrics.ByContainer, metrics.UncoreCache).Inc()
		}
	}
	return nil
}

// refused is a Refusal with its cause.
type refused struct {
	Refusal
	cause messages.Cause
}

// Cause implements messages.CauseError.
func (r refused) Cause() messages.Cause { return r.cause }

// Unwrap returns the Refusal.
func (r refused) Unwrap() error { return r.Refusal }

// explained adds the cause: the requested and the free CPUs, and the pods that hold the others. The caller holds mu.
func (m *Manager) explained(r Refusal) error {
	all, usable := m.given.All(), m.static.Allocatable()
	detail := fmt.Sprintf("container %s requests %d, and %d of %d are free", r.Container, r.Requested,
		usable.Difference(all).Size()-r.Others, usable.Size())
	var holders []string
	for uid, has := range m.given {
		name := m.names[uid]
		if name == "" {
			name = "the pod with UID " + uid
		}
		holders = append(holders, fmt.Sprintf("%s has %d", name, Given{"": has}.All().Size()))
	}
	slices.Sort(holders)
	if r.Others > 0 {
		holders = append(holders, fmt.Sprintf("other containers of the pod have %d", r.Others))
	}
	if len(holders) > 0 {
		detail += "; " + strings.Join(holders, ", ")
	}
	code := messages.CauseNoCPUs
	if r.Reason == ReasonAlignment {
		code = messages.CauseNoCores
		detail = fmt.Sprintf("a core has %d CPUs; %s", m.static.topology.PerCore(), detail)
	}
	return refused{r, messages.Cause{Code: code, Detail: detail, Text: r.Message}}
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
