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

// Signal is something of which a node may have too little.
type Signal string

// The signals, by the names that the configuration has for them.
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

// What pods are ranked by that has no name of its own in the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// signals say which condition of the node each leads to, and what the node is then low on, as the kubelet has it.
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

// Reading is what was measured of one signal: in bytes, inodes or processes.
type Reading struct{ Available, Capacity int64 }

// Measurement is all signals at one time. A signal that could not be measured is in Failed, with why.
type Measurement struct {
	Readings map[Signal]Reading
	Failed   map[Signal]error
	Layout   Layout
}

// limit is one threshold.
type limit struct {
	signal Signal
	field  string // of the configuration
	text   string // as it has it
	grace  time.Duration
	// reclaim is how much more than the threshold there has to be before it counts as no longer met.
	reclaim string
}

// Limits are the thresholds as the configuration has them, by signal. Signals that are not known are left out.
type Limits struct {
	Hard, Soft, SoftGrace, MinimumReclaim map[string]string
	// PodsBounded says that pods together have a limit of memory [enforceNodeAllocatable]: the hard threshold of memory.available
	// then holds within it, too, as with the kubelet.
	PodsBounded bool
}

// copies are thresholds that follow from another one where they are not set. A file system that containers have for themselves
// has those of images, as the kubelet knows none of its own for it.
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

// hard says that pods are ended at once.
func (l limit) hard() bool { return l.field == hardField }

// The fields of the configuration.
const (
	hardField = "evictionHard"
	softField = "evictionSoft"
)

// below says whether there is less than the threshold and, where it was met before, what has to be reclaimed beyond it.
func (l limit) below(r Reading, before bool) bool {
	at := threshold.Quantity(l.text, r.Capacity)
	if before && l.reclaim != "" {
		at.Add(threshold.Quantity(l.reclaim, r.Capacity))
	}
	return at.CmpInt64(r.Available) > 0
}

// describe says what is below the threshold.
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

// pressureState is the pure core: what was measured so far. It is a value: observe makes the next one. It has no clock.
type pressureState struct {
	limits     []limit
	transition time.Duration
	// met is since when each threshold is met, by its place in limits.
	met map[int]time.Time
	// seen is when each kind of pressure was there last; reported is what was sent last.
	seen     map[v1.NodeConditionType]time.Time
	reported map[v1.NodeConditionType]messages.Pressure
}

// texts are the reason and message of each kind without and under pressure; the kubelet's.
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

// observe takes a measurement. A kind of pressure is there as long as one of its thresholds is met, soft ones from the first
// moment on, as with the kubelet, whose grace periods are those of evictions; and then until the transition period has passed
// without. A signal that was not measured meets no threshold.
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
				// what was measured then: a message that changed all the time would be written all the time
				p.Message = was.Message
			}
		}
		next.reported[w.kind] = p
	}
	return next
}

// details are what is measured below its threshold.
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

// sameMet says that the same thresholds of this kind are met in both.
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
