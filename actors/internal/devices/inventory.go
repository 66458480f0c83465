package devices

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/devices/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
)

// stopGrace is how long the devices of a plugin that went are still counted; the kubelet's.
const stopGrace = 5 * time.Minute

// device is one device in its plugin's latest list.
type device struct {
	healthy bool
	nodes   []int64 // its NUMA nodes; empty if not reported
}

// resourceState is one resource. One that the checkpoint alone knows has neither plugin nor devices.
type resourceState struct {
	plugin  *plugin
	devices map[string]device // by ID; never changed, like usable: a list takes the place of the one before
	usable  []string          // the healthy ones, in order
	listed  bool              // by a plugin that is there: else none of them can be used
	gone    time.Time         // since when there is no plugin; zero: there is one
}

// allocation is a container's allocation of a resource.
type allocation struct {
	devices checkpoint.DevicesPerNUMA
	answer  *pluginapi.ContainerAllocateResponse // nil: the plugin is being asked
}

// holder is a container.
type holder struct{ uid, container string }

// inventory is all that is known. Every decision is a function of it, of the question and of the time; the Manager guards it.
type inventory struct {
	nodes     topology.Mask // of the machine; plugins may report any others
	resources map[string]*resourceState
	given     map[holder]map[string]allocation // by resource
}

func newInventory(nodes topology.Mask) *inventory {
	return &inventory{nodes: nodes, resources: map[string]*resourceState{}, given: map[holder]map[string]allocation{}}
}

// ids are the devices, in order.
func (g allocation) ids() []string {
	var all []string
	for _, some := range g.devices {
		all = append(all, some...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// current reports whether the resource's plugin is connected, or has been gone for at most stopGrace.
func (k *resourceState) current(now time.Time) bool {
	return k != nil && (k.gone.IsZero() || now.Sub(k.gone) <= stopGrace)
}

// healthy are the devices that can be used, in order. They must not be changed.
func (k *resourceState) healthy() []string {
	if !k.listed {
		return nil
	}
	return k.usable
}

// isDevice reports whether the resource belongs to a plugin, or is allocated to containers.
func (b *inventory) isDevice(name string, now time.Time) bool {
	if b.resources[name].current(now) {
		return true
	}
	for _, has := range b.given {
		if _, ok := has[name]; ok {
			return true
		}
	}
	return false
}

// free are the healthy devices that no container has, in order.
func (b *inventory) free(name string) []string {
	used := map[string]bool{}
	for _, has := range b.given {
		for _, id := range has[name].ids() {
			used[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(b.resources[name].healthy()), func(id string) bool { return used[id] })
}

// request is a container's request for one resource.
type request struct {
	holder
	resource string
	count    int
	reuse    []string // devices of the pod's init containers
	hint     topology.Result
}

// need is the part of a request that is not allocated yet; zero if the request is met.
type need struct {
	first []string // taken first
	free  []string // of these are taken
	rest  int      // so many
}

// needs returns the unmet part of a request. met is true if the container has its devices already. The errors are the
// kubelet's, since they appear in the pod's status.
func (b *inventory) needs(r request, now time.Time) (n need, met bool, err error) {
	had, has := b.given[r.holder][r.resource]
	cause := messages.Cause{Code: messages.CauseNoDevices, Name: r.resource}
	ids := had.ids()
	k := b.resources[r.resource]
	switch {
	case has && len(ids) != r.count:
		return need{}, false, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", r.uid, r.container,
			r.resource, len(ids), r.count)
	case !k.current(now):
		cause.Code = messages.CauseNoDevicePlugin
		return need{}, false, cause.Errorf("cannot allocate unregistered device %s", r.resource)
	case len(k.healthy()) == 0:
		if cause.Detail = "none is healthy"; k.plugin == nil {
			cause.Code, cause.Detail = messages.CauseNoDevicePlugin, ""
		}
		return need{}, false, cause.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", r.resource)
	case slices.ContainsFunc(ids, func(id string) bool { return !k.devices[id].healthy }):
		cause.Detail = "a device that it has is no longer healthy"
		return need{}, false, cause.Errorf(
			"previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", r.resource)
	case has && had.answer == nil:
		return need{}, false, fmt.Errorf("devices of %s are being allocated already", r.resource)
	case has:
		return need{}, true, nil
	}
	n.first = r.reuse[:min(len(r.reuse), r.count)]
	n.rest, n.free = r.count-len(n.first), b.free(r.resource)
	if len(n.free) < n.rest {
		cause.Detail = fmt.Sprintf("container %s requests %d, and %d of %d are free", r.container, n.rest, len(n.free),
			len(k.healthy()))
		return need{}, false, cause.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			r.resource, n.rest, len(n.free))
	}
	n, err = n.align(k, r)
	return n, false, err
}

// align takes free devices on the nodes of the merged hint first. If there are too few, others complete them, unless the hint
// is a preferred one: it was given when there were enough.
func (n need) align(k *resourceState, r request) (need, error) {
	if r.hint.Nodes == 0 {
		return n, nil
	}
	on, off, without := k.byAffinity(n.free, r.hint.Nodes)
	switch {
	case len(on) > n.rest:
		n.free = on
		return n, nil
	case len(on) < n.rest && r.hint.Preferred:
		return need{}, topology.ChangedError{Err: fmt.Errorf("requested number of devices unavailable for %s on the "+
			"NUMA nodes %s. Requested: %d, Available: %d", r.resource, r.hint.Nodes, n.rest, len(on))}
	}
	n.first, n.rest, n.free = slices.Concat(n.first, on), n.rest-len(on), slices.Concat(off, without)
	return n, nil
}

// pick chooses devices: the container's earlier and reusable ones first, then the plugin's preference among free ones, then
// any. It takes time in proportion to the number of devices: plugins that share memory have one device per MiB.
func (n need) pick(preferred []string) []string {
	out := slices.Clone(n.first)
	may := sets.New(n.free...).Delete(n.first...)
	for _, from := range [][]string{preferred, n.free} {
		for _, id := range from {
			if len(out) < len(n.first)+n.rest && may.Has(id) {
				out = append(out, id)
				may.Delete(id)
			}
		}
	}
	slices.Sort(out)
	return out
}

// reserve notes that a container is given devices; answer is the plugin's, nil until it has come.
func (b *inventory) reserve(r request, ids []string, answer *pluginapi.ContainerAllocateResponse) {
	per := checkpoint.DevicesPerNUMA{}
	for _, id := range ids {
		nodes := b.resources[r.resource].devices[id].nodes
		if len(nodes) == 0 {
			nodes = []int64{checkpoint.NoNode}
		}
		for _, n := range nodes {
			per[n] = append(per[n], id)
		}
	}
	if b.given[r.holder] == nil {
		b.given[r.holder] = map[string]allocation{}
	}
	b.given[r.holder][r.resource] = allocation{per, answer}
}

// release frees a container's devices of a resource.
func (b *inventory) release(h holder, name string) {
	delete(b.given[h], name)
	if len(b.given[h]) == 0 {
		delete(b.given, h)
	}
}

// fit frees the devices of a pod's containers that request another number of them now: a static pod may keep its UID when its
// manifest changes.
func (b *inventory) fit(pod *v1.Pod) {
	limits := map[string]v1.ResourceList{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		limits[c.Name] = c.Resources.Limits
	}
	for h, has := range b.given {
		for name, g := range has {
			q := limits[h.container][v1.ResourceName(name)]
			if h.uid == string(pod.UID) && q.Value() != int64(len(g.ids())) {
				b.release(h, name)
			}
		}
	}
}

// retain frees the devices of all pods for which holds is false.
func (b *inventory) retain(holds func(uid string) bool) {
	maps.DeleteFunc(b.given, func(h holder, _ map[string]allocation) bool { return !holds(h.uid) })
}

// read reads a plugin's list of devices: all of them, and the healthy ones, in order.
func read(list []*pluginapi.Device) (all map[string]device, usable []string) {
	all = make(map[string]device, len(list))
	for _, d := range list {
		one := device{healthy: d.GetHealth() == pluginapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			one.nodes = append(one.nodes, n.GetID())
		}
		all[d.GetID()] = one
	}
	for id, d := range all {
		if d.healthy {
			usable = append(usable, id)
		}
	}
	slices.Sort(usable)
	return all, usable
}

// same reports whether a list equals the current one.
func (k *resourceState) same(all map[string]device) bool {
	return k.listed && maps.EqualFunc(k.devices, all, func(a, b device) bool {
		return a.healthy == b.healthy && slices.Equal(a.nodes, b.nodes)
	})
}

// observe applies a plugin's list, and returns the pods with a device that changed its health or came back.
func (b *inventory) observe(name string, all map[string]device, usable []string) (uids []string) {
	k := b.resources[name]
	was := k.devices
	k.devices, k.usable, k.listed = all, usable, true
	return b.holdersOf(name, func(id string) bool {
		before, there := was[id]
		now, is := all[id]
		return is && (!there || before.healthy != now.healthy)
	})
}

// holdersOf are the pods that have such devices of a resource, in order.
func (b *inventory) holdersOf(name string, is func(id string) bool) (uids []string) {
	for h, has := range b.given {
		if slices.ContainsFunc(has[name].ids(), is) {
			uids = append(uids, h.uid)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// capacity returns the Node's capacity and allocatable amounts of plugins' resources. A resource without a plugin for
// longer than stopGrace has 0.
func (b *inventory) capacity(now time.Time) (capacity, allocatable v1.ResourceList) {
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, k := range b.resources {
		all, healthy := 0, 0
		if k.current(now) {
			all, healthy = len(k.devices), len(k.healthy())
		}
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(all), resource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable
}
