package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/threshold"
	"github.com/playlet-dev/playlet/messages"
)

// Signal is a resource that a node can run short of.
type Signal string

// The signals, by their names in the configuration.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available"
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// Resources for ranking that have no name in the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// signals map each signal to its node condition and to the kubelet's word for the resource.
var signals = map[Signal]struct {
	kind     v1.NodeConditionType
	resource v1.ResourceName
}{
	MemoryAvailable:            {v1.NodeMemoryPressure, v1.ResourceMemory},
	AllocatableMemoryAvailable: {v1.NodeMemoryPressure, v1.ResourceMemory},
	NodeFsAvailable:            {v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	NodeFsInodesFree:           {v1.NodeDiskPressure, resourceInodes},
	ImageFsAvailable:           {v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	ImageFsInodesFree:          {v1.NodeDiskPressure, resourceInodes},
	ContainerFsAvailable:       {v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
	ContainerFsInodesFree:      {v1.NodeDiskPressure, resourceInodes},
	PIDAvailable:               {v1.NodePIDPressure, resourcePIDs},
}

func (s Signal) kind() v1.NodeConditionType { return signals[s].kind }

// Reading is the measurement of one signal, in bytes, inodes or processes.
type Reading struct{ Available, Capacity int64 }

// Measurement holds all signals at one time. Failed maps a signal that could not be measured to the cause.
type Measurement struct {
	Readings map[Signal]Reading
	Failed   map[Signal]error
	Layout   Layout
}

// limit is one threshold.
type limit struct {
	signal Signal
	field  string // of the configuration
	text   string // as configured
	grace  time.Duration
	// reclaim is the amount beyond the threshold that is needed before it is no longer met.
	reclaim string
}

// Limits are the configured thresholds, by signal. Unknown signals are ignored.
type Limits struct {
	Hard, Soft, SoftGrace, MinimumReclaim map[string]string
	// PodsBounded is true if all pods share a limit of memory [enforceNodeAllocatable]. The hard threshold of memory.available
	// then applies within it too, as with the kubelet.
	PodsBounded bool
}

// copies are thresholds with a default taken from another one. A file system for containers alone has the thresholds of images,
// since the kubelet has none of its own for it.
var copies = map[Signal]Signal{ContainerFsAvailable: ImageFsAvailable, ContainerFsInodesFree: ImageFsInodesFree}

func (l Limits) list() []limit {
	var out []limit
	for _, of := range []struct {
		field string
		texts map[string]string
	}{{hardField, l.Hard}, {softField, l.Soft}} {
		for _, signal := range slices.Sorted(maps.Keys(signals)) {
			from := signal
			if _, set := of.texts[string(signal)]; !set {
				from = cmp.Or(copies[signal], signal)
			}
			if signal == AllocatableMemoryAvailable && of.field == hardField && l.PodsBounded && of.texts[string(signal)] == "" {
				from = MemoryAvailable
			}
			text := of.texts[string(from)]
			if text == "" || threshold.TurnedOff(text) {
				continue
			}
			one := limit{signal: signal, field: of.field, text: text, reclaim: l.MinimumReclaim[string(from)]}
			if of.field == softField {
				one.grace, _ = time.ParseDuration(l.SoftGrace[string(from)]) // validated
			}
			out = append(out, one)
		}
	}
	return out
}

// hard reports whether pods are ended at once.
func (l limit) hard() bool { return l.field == hardField }

// Fields of the configuration.
const (
	hardField = "evictionHard"
	softField = "evictionSoft"
)

// below reports whether less than the threshold is left, plus the minimum reclaim if it was met before.
func (l limit) below(r Reading, before bool) bool {
	at := threshold.Quantity(l.text, r.Capacity)
	if before && l.reclaim != "" {
		at.Add(threshold.Quantity(l.reclaim, r.Capacity))
	}
	return at.CmpInt64(r.Available) > 0
}

// describe returns the text for a reading below the threshold.
func (l limit) describe(r Reading) string {
	show := func(n int64) string { return fmt.Sprint(n) }
	if r := signals[l.signal].resource; r == v1.ResourceMemory || r == v1.ResourceEphemeralStorage {
		show = mebibytes
	}
	return fmt.Sprintf("%s is %s of %s, less than %s (%s)", l.signal, show(r.Available), show(r.Capacity), l.text, l.field)
}

func mebibytes(n int64) string {
	return resource.NewQuantity(n>>20<<20, resource.BinarySI).String()
}

// pressureState is the pure core: the result of all measurements so far. It is a value: observe returns the next one. It has no
// clock.
type pressureState struct {
	limits     []limit
	transition time.Duration
	// met holds the time since when each threshold is met, by its index in limits.
	met map[int]time.Time
	// seen is when each kind of pressure was last present; reported is the last sent report.
	seen     map[v1.NodeConditionType]time.Time
	reported map[v1.NodeConditionType]messages.Pressure
}

// texts are the kubelet's reasons and messages of each kind, without and under pressure.
var texts = []struct {
	kind                      v1.NodeConditionType
	noneReason, noneMessage   string
	underReason, underMessage string
}{
	{v1.NodeMemoryPressure, "KubeletHasSufficientMemory", "kubelet has sufficient memory available",
		"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
	{v1.NodeDiskPressure, "KubeletHasNoDiskPressure", "kubelet has no disk pressure", "KubeletHasDiskPressure",
		"kubelet has disk pressure"},
	{v1.NodePIDPressure, "KubeletHasSufficientPID", "kubelet has sufficient PID available", "KubeletHasInsufficientPID",
		"kubelet has insufficient PID available"},
}

// observe applies a measurement. A kind of pressure is present while one of its thresholds is met, soft ones at once: as with
// the kubelet, their grace periods apply to evictions. It then persists for the transition period. A signal without a reading
// meets no threshold.
func (s pressureState) observe(m Measurement, now time.Time) pressureState {
	next := pressureState{
		limits: s.limits, transition: s.transition, met: map[int]time.Time{}, seen: maps.Clone(s.seen),
		reported: map[v1.NodeConditionType]messages.Pressure{},
	}
	if next.seen == nil {
		next.seen = map[v1.NodeConditionType]time.Time{}
	}
	met := map[v1.NodeConditionType][]limit{}
	for i, l := range s.limits {
		since, before := s.met[i]
		r, measured := m.Readings[l.signal]
		if !measured || !l.below(r, before && now.Sub(since) >= l.grace) {
			continue
		}
		if !before {
			since = now
		}
		next.met[i] = since
		kind := l.signal.kind()
		next.seen[kind] = now
		met[kind] = append(met[kind], l)
	}
	for _, w := range texts {
		p := messages.Pressure{Type: w.kind, Reason: w.noneReason, Message: w.noneMessage}
		if seen, ok := next.seen[w.kind]; ok && (len(met[w.kind]) > 0 || now.Sub(seen) < s.transition) {
			p.Under, p.Reason = true, w.underReason
			p.Message = w.underMessage + details(met[w.kind], m)
		}
		was, reported := s.reported[w.kind]
		p.Since = now
		if reported && was.Under == p.Under {
			p.Since = was.Since
			if len(met[w.kind]) == 0 || s.sameMet(next, w.kind) {
				// the reading at that time: a message that always changes would always be written
				p.Message = was.Message
			}
		}
		next.reported[w.kind] = p
	}
	return next
}

// details returns the readings below their thresholds.
func details(met []limit, m Measurement) string {
	lines := make([]string, 0, len(met))
	for _, l := range met {
		lines = append(lines, l.describe(m.Readings[l.signal]))
	}
	if len(lines) == 0 {
		return ""
	}
	return ": " + strings.Join(lines, "; ")
}

// sameMet reports whether both meet the same thresholds of this kind.
func (s pressureState) sameMet(other pressureState, kind v1.NodeConditionType) bool {
	for i, l := range s.limits {
		_, here := s.met[i]
		_, there := other.met[i]
		if l.signal.kind() == kind && here != there {
			return false
		}
	}
	return true
}

// pressures are all kinds, in the kubelet's order.
func (s pressureState) pressures() []messages.Pressure {
	out := make([]messages.Pressure, 0, len(texts))
	for _, w := range texts {
		out = append(out, s.reported[w.kind])
	}
	return out
}
