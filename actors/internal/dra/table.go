package dra

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/playlet-dev/playlet/actors/internal/dra/checkpoint"
	"github.com/playlet-dev/playlet/messages"
)

// claim is a ResourceClaim that is prepared here, or may be.
type claim struct {
	checkpoint.Claim
	// done has the drivers that have prepared it since the process started, or that have unprepared it since ending was set.
	done   sets.Set[string]
	ending bool
}

func (c *claim) key() key { return key{Namespace: c.Namespace, Name: c.ClaimName} }

// complete reports whether all drivers have done their part.
func (c *claim) complete() bool { return len(c.done) == len(c.DriverState) }

// prepared reports whether all drivers have prepared it since the process started.
func (c *claim) prepared() bool { return !c.ending && c.complete() }

// devices returns the devices of the claim with their drivers, in the order of the drivers' names, that belong to a request; an
// empty request selects all.
func (c *claim) devices(request string) (out []device) {
	for _, driver := range slices.Sorted(maps.Keys(c.DriverState)) {
		for _, d := range c.DriverState[driver].Devices {
			if request == "" || len(d.RequestNames) == 0 || slices.ContainsFunc(d.RequestNames, func(name string) bool {
				return sameRequest(name, request)
			}) {
				out = append(out, device{driver, d})
			}
		}
	}
	return out
}

type device struct {
	driver string
	checkpoint.Device
}

// sameRequest reports whether two names refer to the same request. The name of a request with alternatives may have the chosen
// one after a slash (KEP-4816); a name without it refers to all.
func sameRequest(a, b string) bool {
	request, subA, _ := strings.Cut(a, "/")
	other, subB, _ := strings.Cut(b, "/")
	return request == other && (subA == "" || subB == "" || subA == subB)
}

// batch has the claims of one call, by driver.
type batch map[string][]*claim

func (b batch) add(c *claim) {
	for driver := range c.DriverState {
		if !c.done.Has(driver) {
			b[driver] = append(b[driver], c)
		}
	}
}

// request returns the claims as drivers receive them.
func request(claims []*claim) (out []*api.Claim) {
	for _, c := range claims {
		out = append(out, &api.Claim{Namespace: c.Namespace, Name: c.ClaimName, Uid: string(c.ClaimUID)})
	}
	return out
}

// names returns the names of claims for messages, sorted.
func names(claims []*claim) string {
	var out []string
	for _, c := range claims {
		out = append(out, c.key().String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// table is the state of all claims. The UID, namespace, name, and the set of drivers of a claim do not change.
type table map[key]*claim

// restore returns the table of a checkpoint. No claim counts as prepared: drivers may have lost their state with the machine.
func restore(claims []checkpoint.Claim) table {
	t := table{}
	for i := range claims {
		c := &claim{Claim: claims[i], done: sets.New[string]()}
		if c.PodUIDs == nil {
			c.PodUIDs = sets.New[string]()
		}
		if c.DriverState == nil {
			c.DriverState = map[string]checkpoint.Driver{}
		}
		t[c.key()] = c
	}
	return t
}

// state returns the content of the checkpoint, in the order of names. It shares nothing that changes.
func (t table) state() []checkpoint.Claim {
	out := make([]checkpoint.Claim, 0, len(t))
	for _, c := range t {
		copied := c.Claim
		copied.PodUIDs, copied.DriverState = c.PodUIDs.Clone(), maps.Clone(c.DriverState)
		out = append(out, copied)
	}
	slices.SortFunc(out, func(a, b checkpoint.Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ClaimName, b.ClaimName))
	})
	return out
}

// begin records that a pod uses claims, and returns those that drivers have to prepare. On an error nothing is recorded: a pod
// that cannot use a claim can end without its driver. If lost, the checkpoint was damaged: a claim that is new to the table then
// also counts as used by the other pods that it is reserved for, which may run. The sweep releases those that are not here.
func (t table) begin(uid string, claims []*resourceapi.ResourceClaim, lost bool) (batch, error) {
	for _, r := range claims {
		c := t[key{Namespace: r.Namespace, Name: r.Name}]
		if c == nil {
			continue
		}
		cause := messages.Cause{Code: messages.CauseClaimUnready, Kind: claimKind, Name: c.key().String()}
		switch {
		case c.ClaimUID != r.UID:
			return nil, cause.Errorf("old ResourceClaim with same name %s and different UID %s still exists (its pod was "+
				"deleted by force)", c.ClaimName, c.ClaimUID)
		case c.ending && !c.PodUIDs.Has(uid):
			return nil, cause.Errorf("ResourceClaim %s is still being unprepared for pod %s, which has ended", c.ClaimName,
				strings.Join(sets.List(c.PodUIDs), ", "))
		}
	}
	out := batch{}
	for _, r := range claims {
		k := key{Namespace: r.Namespace, Name: r.Name}
		c := t[k]
		if c == nil {
			c = &claim{done: sets.New[string](), Claim: checkpoint.Claim{ClaimUID: r.UID, ClaimName: r.Name,
				Namespace: r.Namespace, PodUIDs: sets.New[string](), DriverState: map[string]checkpoint.Driver{}}}
			for _, driver := range driversOf(r) {
				c.DriverState[driver] = checkpoint.Driver{}
			}
			if lost {
				c.PodUIDs.Insert(reservers(r)...)
			}
			t[k] = c
		}
		if c.ending { // a driver may have unprepared it
			c.ending, c.done = false, sets.New[string]()
		}
		c.PodUIDs.Insert(uid)
		out.add(c)
	}
	return out, nil
}

// prepared records the devices with which a driver has prepared a claim.
func (t table) prepared(c *claim, driver string, devices []*api.Device) {
	var state checkpoint.Driver
	for _, d := range devices {
		state.Devices = append(state.Devices, checkpoint.Device{PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(),
			ShareID: (*types.UID)(d.ShareId), RequestNames: d.GetRequestNames(), CDIDeviceIDs: d.GetCdiDeviceIds()})
	}
	c.DriverState[driver] = state
	c.done.Insert(driver)
}

// of returns the claims that a pod uses.
func (t table) of(uid string) (out []key) {
	for k, c := range t {
		if c.PodUIDs.Has(uid) {
			out = append(out, k)
		}
	}
	return out
}

// end returns the claims that drivers have to unprepare because a pod was their last one. A claim of other pods only loses this
// one. The last pod stays recorded until settle.
func (t table) end(uid string) batch {
	out := batch{}
	for _, k := range t.of(uid) {
		c := t[k]
		if len(c.PodUIDs) > 1 {
			c.PodUIDs.Delete(uid)
			continue
		}
		if !c.ending {
			c.ending, c.done = true, sets.New[string]()
		}
		out.add(c)
	}
	return out
}

// settle forgets the claims that all drivers have unprepared.
func (t table) settle(uid string) {
	for _, k := range t.of(uid) {
		if c := t[k]; c.ending && c.complete() {
			delete(t, k)
		}
	}
}

// holders returns the UIDs of the pods that use claims, sorted.
func (t table) holders() []string {
	out := sets.New[string]()
	for _, c := range t {
		out = out.Union(c.PodUIDs)
	}
	return sets.List(out)
}

// inUse returns the numbers of prepared claims by driver, and of all under "<any>".
func (t table) inUse() map[string]int {
	out := map[string]int{"<any>": 0}
	for _, c := range t {
		if !c.prepared() {
			continue
		}
		out["<any>"]++
		for driver := range c.DriverState {
			out[driver]++
		}
	}
	return out
}

// users returns the UIDs of the pods that use one of a driver's devices, sorted.
func (t table) users(driver string, devices sets.Set[deviceID]) []string {
	out := sets.New[string]()
	for _, c := range t {
		for _, d := range c.DriverState[driver].Devices {
			if devices.Has(deviceID{d.PoolName, d.DeviceName}) {
				out = out.Union(c.PodUIDs)
			}
		}
	}
	return sets.List(out)
}
