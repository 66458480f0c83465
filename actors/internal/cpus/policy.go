package cpus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/cri/translate"
)

// Options are the options of the static policy.
type Options struct {
	FullCores   bool // full-pcpus-only
	AcrossNodes bool // distribute-cpus-across-numa
	BySocket    bool // align-by-socket: for hints to the topology manager
	AcrossCores bool // distribute-cpus-across-cores
	Strict      bool // strict-cpu-reservation
	AlignCaches bool // prefer-align-cpus-by-uncorecache
}

// option is a row of the table of options. The stage is Alpha, Beta, or empty for stable ones.
type option struct {
	name, stage string
	at          func(*Options) *bool
}

var options = []option{
	{"full-pcpus-only", "", func(o *Options) *bool { return &o.FullCores }},
	{"strict-cpu-reservation", "", func(o *Options) *bool { return &o.Strict }},
	{"prefer-align-cpus-by-uncorecache", "", func(o *Options) *bool { return &o.AlignCaches }},
	{"distribute-cpus-across-numa", "Beta", func(o *Options) *bool { return &o.AcrossNodes }},
	{"align-by-socket", "Alpha", func(o *Options) *bool { return &o.BySocket }},
	{"distribute-cpus-across-cores", "Alpha", func(o *Options) *bool { return &o.AcrossCores }},
}

// exclusive are pairs of options that contradict each other.
var exclusive = [][2]string{
	{"full-pcpus-only", "distribute-cpus-across-cores"},
	{"distribute-cpus-across-numa", "distribute-cpus-across-cores"},
	{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"},
	{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"},
}

// ParseOptions reads cpuManagerPolicyOptions. enabled reports whether options of a stage, Alpha or Beta, are enabled. Each has a
// feature gate of its own.
func ParseOptions(values map[string]string, enabled func(stage string) bool) (Options, error) {
	var out Options
	set := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(options, func(o option) bool { return o.name == name })
		if i < 0 {
			return Options{}, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		o := options[i]
		if o.stage != "" && !enabled(o.stage) {
			return Options{}, fmt.Errorf("CPU Manager Policy %s-level Options not enabled, but option %q provided", o.stage, name)
		}
		on, err := strconv.ParseBool(values[name])
		if err != nil {
			return Options{}, fmt.Errorf("bad value for option %q: %w", name, err)
		}
		*o.at(&out), set[name] = on, on
	}
	for _, pair := range exclusive {
		if set[pair[0]] && set[pair[1]] {
			return Options{}, fmt.Errorf("static policy options %s and %s can not be used at the same time", pair[0], pair[1])
		}
	}
	return out, nil
}

// Static is the static policy on a node. It is immutable.
type Static struct {
	topology Topology
	options  Options
	reserved cpuset.CPUSet
}

// NewStatic returns the policy. reserved are the CPUs of reservedSystemCPUs; if it is empty, count CPUs are chosen, which is the
// reserved CPU time rounded up.
func NewStatic(t Topology, reserved cpuset.CPUSet, count int, o Options) (Static, error) {
	if !reserved.IsEmpty() {
		count = reserved.Size()
	}
	if count == 0 {
		return Static{}, fmt.Errorf("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
	}
	if o.BySocket && t.count(socket) > t.count(node) {
		return Static{}, fmt.Errorf("align-by-socket is not compatible with hardware that has more sockets than NUMA nodes")
	}
	if reserved.IsEmpty() {
		reserved, _ = Take(t, t.All(), count, o)
	}
	if reserved.Size() != count {
		return Static{}, fmt.Errorf("unable to reserve the required amount of CPUs (size of %s did not equal %d)",
			reserved, count)
	}
	if unknown := reserved.Difference(t.All()); !unknown.IsEmpty() {
		return Static{}, fmt.Errorf("reserved CPUs %s do not exist", unknown)
	}
	return Static{topology: t, options: o, reserved: reserved}, nil
}

// Assignments are the exclusive CPUs of containers, by UID and name. It is immutable: changes return a new value.
type Assignments map[string]map[string]cpuset.CPUSet

// All returns all exclusive CPUs.
func (g Assignments) All() cpuset.CPUSet {
	var out cpuset.CPUSet
	for _, pod := range g {
		for _, set := range pod {
			out = out.Union(set)
		}
	}
	return out
}

// Keep returns the assignments of the pods that still hold their CPUs.
func (g Assignments) Keep(holds func(uid string) bool) Assignments {
	out := maps.Clone(g)
	maps.DeleteFunc(out, func(uid string, _ map[string]cpuset.CPUSet) bool { return !holds(uid) })
	return out
}

// fitting returns a copy of the assignments. It drops containers of the pod that now request a different number of CPUs, because
// a static pod keeps its UID when its manifest changes.
func (g Assignments) fitting(pod *v1.Pod) Assignments {
	uid := string(pod.UID)
	requests := map[string]int{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			requests[list[i].Name] = Exclusive(pod, &list[i])
		}
	}
	out := Assignments{}
	maps.Copy(out, g)
	has := maps.Clone(g[uid])
	maps.DeleteFunc(has, func(name string, set cpuset.CPUSet) bool { return set.Size() != requests[name] })
	if out[uid] = has; len(has) == 0 {
		delete(out, uid)
	}
	return out
}

// Reserved returns the CPUs that are never exclusive.
func (p Static) Reserved() cpuset.CPUSet { return p.reserved }

// Allocatable returns the CPUs that may be exclusive.
func (p Static) Allocatable() cpuset.CPUSet { return p.topology.All().Difference(p.reserved) }

// Shared returns the CPUs of all containers without exclusive ones.
func (p Static) Shared(g Assignments) cpuset.CPUSet { return p.pool().Difference(g.All()) }

// pool returns the CPUs that containers may use.
func (p Static) pool() cpuset.CPUSet {
	if p.options.Strict {
		return p.Allocatable()
	}
	return p.topology.All()
}

// ReasonAlignment is the reason of a pod that full-pcpus-only refuses; the kubelet's.
const ReasonAlignment = "SMTAlignmentError"

// Refusal is the error of a pod that cannot have its CPUs.
type Refusal struct {
	Reason    string // the kubelet's, for the pod's status; empty if it has none of its own
	Message   string
	Container string // that cannot have its CPUs
	Requested int
	Others    int // CPUs that the pod's containers before it would have
}

func (r Refusal) Error() string { return r.Message }

// Allocate adds the exclusive CPUs of a container, from the nodes of the merged hint if possible. One that has its CPUs keeps
// them. The error is a Refusal, or a topology.ChangedError.
func (p Static) Allocate(g Assignments, pod *v1.Pod, c *v1.Container, hint topology.Result) (Assignments, error) {
	uid, n := string(pod.UID), Exclusive(pod, c)
	if _, had := g[uid][c.Name]; had || n == 0 {
		return g, nil
	}
	set, err := p.choose(g, n, g.reusable(pod, c), hint)
	if _, changed := errors.AsType[topology.ChangedError](err); changed {
		return g, err
	}
	if refusal, refused := errors.AsType[Refusal](err); refused {
		refusal.Container, refusal.Requested, refusal.Others = c.Name, n, Assignments{"": g[uid]}.All().Size()
		return g, refusal
	}
	has := maps.Clone(g[uid])
	if has == nil {
		has = map[string]cpuset.CPUSet{}
	}
	has[c.Name] = set
	out := maps.Clone(g)
	if out == nil {
		out = Assignments{}
	}
	out[uid] = has
	return out, nil
}

// reusable returns the CPUs of a pod's init containers that a container may reuse: those that no container between has.
func (g Assignments) reusable(pod *v1.Pod, c *v1.Container) (reuse cpuset.CPUSet) {
	for i, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for j := range list {
			one := &list[j]
			if one.Name == c.Name {
				return reuse
			}
			if set := g[string(pod.UID)][one.Name]; i == 0 && !translate.RestartsAlways(one) {
				reuse = reuse.Union(set)
			} else {
				reuse = reuse.Difference(set)
			}
		}
	}
	return reuse
}

func (p Static) choose(g Assignments, n int, reuse cpuset.CPUSet, hint topology.Result) (cpuset.CPUSet, error) {
	shared := p.Shared(g)
	if per := p.topology.PerCore(); p.options.FullCores {
		if n%per != 0 {
			return cpuset.CPUSet{}, Refusal{Reason: ReasonAlignment, Message: fmt.Sprintf(
				"SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", n, per)}
		}
		// Siblings of reserved CPUs can never be part of a free core.
		siblings := p.topology.Siblings(p.reserved)
		reuse = reuse.Difference(siblings)
		if free := shared.Difference(siblings).Union(reuse).Size(); n > free {
			return cpuset.CPUSet{}, Refusal{Reason: ReasonAlignment, Message: fmt.Sprintf(
				"SMT Alignment Error: not enough free physical CPUs: "+
					"available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free, n, per)}
		}
		shared = shared.Difference(siblings)
	}
	free := shared.Difference(p.reserved).Union(reuse)
	if hint.Preferred && hint.Nodes != 0 && p.topology.within(p.alignment(hint.Nodes), free).Size() < n {
		return cpuset.CPUSet{}, topology.ChangedError{Err: Refusal{Message: fmt.Sprintf(
			"not enough cpus available on the NUMA nodes %s: requested=%d", hint.Nodes, n)}}
	}
	set, err := p.takeFrom(hint.Nodes, free, n)
	if err != nil {
		return set, Refusal{Message: err.Error()}
	}
	return set, nil
}

// Asks reports whether a container of the pod has CPUs to itself under the static policy.
func Asks(pod *v1.Pod) bool { return ofPod(pod) > 0 }

// ofPod returns the largest number of CPUs that a pod uses at a time: the CPUs of its containers and sidecars, or of an init
// container and the sidecars before it.
func ofPod(pod *v1.Pod) int {
	sidecars, inits, sum := 0, 0, 0
	for i := range pod.Spec.InitContainers {
		n := Exclusive(pod, &pod.Spec.InitContainers[i])
		if translate.RestartsAlways(&pod.Spec.InitContainers[i]) {
			sidecars += n
		} else {
			inits = max(inits, sidecars+n)
		}
	}
	for i := range pod.Spec.Containers {
		sum += Exclusive(pod, &pod.Spec.Containers[i])
	}
	return max(inits, sidecars+sum)
}

// Exclusive returns the number of CPUs that a container has to itself under the static policy. It is 0 for pods with resources at
// the level of the pod.
func Exclusive(pod *v1.Pod, c *v1.Container) int {
	if pod.Spec.Resources != nil && len(pod.Spec.Resources.Requests)+len(pod.Spec.Resources.Limits) > 0 {
		return 0
	}
	cpu := c.Resources.Requests[v1.ResourceCPU]
	if translate.QOSClass(pod) != v1.PodQOSGuaranteed || cpu.Value()*1000 != cpu.MilliValue() {
		return 0
	}
	return int(cpu.Value())
}

// Restore checks the assignments of a checkpoint against the node: the shared pool and the exclusive CPUs must be its CPUs.
func (p Static) Restore(shared cpuset.CPUSet, g Assignments) error {
	if shared.IsEmpty() {
		if len(g) > 0 && !g.All().Equals(p.pool()) { // with strict-cpu-reservation all may be exclusive
			return fmt.Errorf("default cpuset cannot be empty")
		}
		return nil
	}
	if some := p.reserved.Intersection(shared); p.options.Strict && !some.IsEmpty() {
		return fmt.Errorf("some of strictly reserved cpus: %q are present in defaultCpuSet: %q", some, shared)
	} else if !p.options.Strict && !some.Equals(p.reserved) {
		return fmt.Errorf("not all reserved cpus: %q are present in defaultCpuSet: %q", p.reserved, shared)
	}
	for _, uid := range slices.Sorted(maps.Keys(g)) {
		for _, name := range slices.Sorted(maps.Keys(g[uid])) {
			if set := g[uid][name]; !set.Intersection(shared).IsEmpty() {
				return fmt.Errorf("pod: %s, container: %s cpuset: %q overlaps with default cpuset %q", uid, name, set, shared)
			}
		}
	}
	if known := shared.Union(g.All()); !known.Equals(p.pool()) {
		return fmt.Errorf("current set of available CPUs %q doesn't match with CPUs in state %q", p.pool(), known)
	}
	return nil
}
