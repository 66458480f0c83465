package dra

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/dra/checkpoint"
	"github.com/playlet-dev/playlet/messages"
)

// aClaim is allocated by drivers and reserved for pods, by UID.
func aClaim(name string, drivers, pods []string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, d := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: d, Pool: "pool", Device: "device"})
	}
	for _, uid := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: uid, UID: types.UID(uid)})
	}
	return c
}

// aPod uses claims by name with its only container.
func aPod(uid string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: &c})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: "my-" + c})
	}
	return p
}

func TestNeedsOf(t *testing.T) {
	shared, made := "shared", "web-gpu-x1"
	pod := aPod("u", "shared")
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
		v1.PodResourceClaim{Name: "again", ResourceClaimName: &shared},
		v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("template")},
		v1.PodResourceClaim{Name: "none", ResourceClaimTemplateName: new("template")})
	if _, err := needsOf(pod, true); err == nil || messages.CauseOf(err).Code != messages.CauseClaimUnready {
		t.Errorf("a template without a claim: got %v", err)
	}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &made}, {Name: "none"}}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	of := func(name string, owned bool) need { return need{key{Namespace: "ns", Name: name}, owned} }
	for extended, want := range map[bool][]need{
		false: {of("shared", false), of(made, true)},
		true:  {of("shared", false), of(made, true), of("extended", false)},
	} {
		if got, err := needsOf(pod, extended); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("extended %v: got %v, %v, want %v", extended, got, err, want)
		}
	}
}

func TestCheckOfAClaim(t *testing.T) {
	pod := aPod("u")
	other := aClaim("c", []string{"d"}, []string{"u"})
	owned := other.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{UID: "u", Controller: new(true)}}
	unallocated := other.DeepCopy()
	unallocated.Status.Allocation = nil
	otherKind := other.DeepCopy()
	otherKind.Status.ReservedFor[0].APIGroup = "example.org"
	for name, c := range map[string]struct {
		claim *resourceapi.ResourceClaim
		owned bool
		fails bool
	}{
		"ready":                   {other, false, false},
		"of another pod":          {other, true, true},
		"made for the pod":        {owned, true, false},
		"not allocated":           {unallocated, false, true},
		"reserved for no one":     {aClaim("c", nil, nil), false, true},
		"reserved for another":    {aClaim("c", nil, []string{"v"}), false, true},
		"reserved for one of two": {aClaim("c", nil, []string{"v", "u"}), false, false},
		"reserved for no pod":     {otherKind, false, true},
	} {
		if err := (need{key{Namespace: "ns", Name: "c"}, c.owned}).check(pod, c.claim); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A container gets the devices of its requests: of alternatives whichever was chosen (KEP-4816), and of shared devices each share
// (KEP-5075).
func TestDevicesOfAContainer(t *testing.T) {
	share := types.UID("share-1")
	tab := restore([]checkpoint.Claim{
		{ClaimUID: "1", ClaimName: "c", Namespace: "ns", PodUIDs: sets.New("u"), DriverState: map[string]checkpoint.Driver{
			"b.org": {Devices: []checkpoint.Device{{DeviceName: "any", CDIDeviceIDs: []string{"b.org/x=any"}}}},
			"a.org": {Devices: []checkpoint.Device{
				{DeviceName: "one", RequestNames: []string{"gpu"}, CDIDeviceIDs: []string{"a.org/x=one", "a.org/x=common"}},
				{DeviceName: "two", RequestNames: []string{"net/fast"}, CDIDeviceIDs: []string{"a.org/x=two", "a.org/x=common"}},
				{DeviceName: "two", ShareID: &share, RequestNames: []string{"net/fast"}, CDIDeviceIDs: []string{"a.org/x=share"}},
			}},
		}},
		{ClaimUID: "2", ClaimName: "ext", Namespace: "ns", PodUIDs: sets.New("u"), DriverState: map[string]checkpoint.Driver{
			"a.org": {Devices: []checkpoint.Device{{RequestNames: []string{"container-0-request-0"}, CDIDeviceIDs: []string{"a.org/x=ext"}}}}}},
	})
	m := &Manager{table: tab, extended: true}
	devices := func(pod *v1.Pod) (out []string) {
		got, err := m.Devices(t.Context(), pod, &pod.Spec.Containers[0])
		if err != nil {
			t.Error(err)
		}
		for _, d := range got {
			out = append(out, d.GetName())
		}
		return out
	}
	for request, want := range map[string][]string{
		"":         {"a.org/x=one", "a.org/x=common", "a.org/x=two", "a.org/x=share", "b.org/x=any"},
		"gpu":      {"a.org/x=one", "a.org/x=common", "b.org/x=any"},
		"net":      {"a.org/x=two", "a.org/x=common", "a.org/x=share", "b.org/x=any"},
		"net/fast": {"a.org/x=two", "a.org/x=common", "a.org/x=share", "b.org/x=any"},
		"net/slow": {"b.org/x=any"},
	} {
		pod := aPod("u", "c")
		pod.Spec.Containers[0].Resources.Claims[0].Request = request
		if got := devices(pod); !slices.Equal(got, want) {
			t.Errorf("request %q: got %v, want %v", request, got, want)
		}
	}
	none := aPod("u", "c")
	none.Spec.Containers[0].Resources.Claims = nil
	if got := devices(none); got != nil {
		t.Errorf("a container without the claim: got %v", got)
	}
	ext := aPod("u")
	ext.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "ext",
		RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "app", ResourceName: "example.com/gpu", RequestName: "container-0-request-0"}}}
	if got := devices(ext); got != nil {
		t.Errorf("an extended resource that the container does not request: got %v", got)
	}
	ext.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	if got := devices(ext); !slices.Equal(got, []string{"a.org/x=ext"}) {
		t.Errorf("an extended resource: got %v", got)
	}
}

func TestAClaimWithAnotherUIDIsNotTaken(t *testing.T) {
	tab := table{}
	if _, err := tab.begin("u", []*resourceapi.ResourceClaim{aClaim("c", []string{"d"}, nil)}, false); err != nil {
		t.Fatal(err)
	}
	again := aClaim("c", []string{"d"}, nil)
	again.UID = "other"
	_, err := tab.begin("v", []*resourceapi.ResourceClaim{aClaim("b", []string{"d"}, nil), again}, false)
	if err == nil || messages.CauseOf(err).Code != messages.CauseClaimUnready {
		t.Errorf("got %v", err)
	}
	if got := tab.holders(); !slices.Equal(got, []string{"u"}) {
		t.Errorf("the refused pod is recorded: %v", got)
	}
}

// A claim that is being unprepared for a pod that has ended is not prepared for another pod meanwhile.
func TestBegin_EndingClaim(t *testing.T) {
	tab, claims := table{}, []*resourceapi.ResourceClaim{aClaim("c", []string{"d"}, nil)}
	if _, err := tab.begin("u", claims, false); err != nil {
		t.Fatal(err)
	}
	todo := tab.end("u")
	if _, err := tab.begin("v", claims, false); err == nil || messages.CauseOf(err).Code != messages.CauseClaimUnready {
		t.Errorf("got %v, want that the claim is not ready", err)
	}
	todo["d"][0].done.Insert("d")
	tab.settle("u")
	if _, err := tab.begin("v", claims, false); err != nil || !slices.Equal(tab.holders(), []string{"v"}) {
		t.Errorf("after the end: %v, holders %v", err, tab.holders())
	}
}

// model is the world of the property test: the drivers' prepared claims, and the pods.
type model struct {
	table    table
	prepared map[string]map[string]bool // by driver and claim
	running  map[string][]string        // the claims of pods that may run, by UID
	using    map[string][]string        // the claims of pods with a reference, by UID
}

// The table keeps these promises while drivers fail at any call and the agent is killed at any time: a pod runs only when all
// drivers have prepared its claims, no driver is asked to unprepare the claim of a running pod, and nothing stays prepared after
// the last pod.
func TestTableProperty(t *testing.T) {
	drivers := map[string][]string{"c1": {"d1"}, "c2": {"d1", "d2"}, "c3": nil}
	rapid.Check(t, func(t *rapid.T) {
		m := model{table{}, map[string]map[string]bool{"d1": {}, "d2": {}}, map[string][]string{}, map[string][]string{}}
		ends := func(uid string, fails func() bool) {
			delete(m.running, uid)
			todo := m.table.end(uid)
			for _, driver := range slices.Sorted(maps.Keys(todo)) {
				for _, c := range todo[driver] {
					for pod, claims := range m.running {
						if slices.Contains(claims, c.ClaimName) {
							t.Fatalf("%s is to be unprepared while %s runs", c.ClaimName, pod)
						}
					}
					if !fails() {
						delete(m.prepared[driver], c.ClaimName)
						c.done.Insert(driver)
					}
				}
			}
			m.table.settle(uid)
			if !slices.Contains(m.table.holders(), uid) {
				delete(m.using, uid)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			uid := fmt.Sprint("u", rapid.IntRange(1, 3).Draw(t, "pod"))
			fails := func() bool { return rapid.IntRange(0, 3).Draw(t, "fails") == 0 }
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0: // the agent is killed; the disk remains
				text, err := checkpoint.Encode(m.table.state())
				if err != nil {
					t.Fatal(err)
				}
				claims, err := checkpoint.Decode(text)
				if err != nil {
					t.Fatal(err)
				}
				m.table = restore(claims)
			case 1, 2:
				ends(uid, fails)
			default:
				names := m.using[uid]
				if names == nil {
					names = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"c1", "c2", "c3"}), 1, 3, rapid.ID[string]).Draw(t, "claims")
				}
				var claims []*resourceapi.ResourceClaim
				for _, name := range names {
					claims = append(claims, aClaim(name, drivers[name], nil))
				}
				todo, err := m.table.begin(uid, claims, false)
				if err != nil { // a claim is being unprepared for another pod, and nothing is recorded
					if slices.Contains(m.table.holders(), uid) != (m.using[uid] != nil) {
						t.Fatalf("%v, and the holders are %v", err, m.table.holders())
					}
					continue
				}
				m.using[uid] = names
				failed := false
				for _, driver := range slices.Sorted(maps.Keys(todo)) {
					for _, c := range todo[driver] {
						if fails() {
							failed = true
							continue
						}
						m.prepared[driver][c.ClaimName] = true
						m.table.prepared(c, driver, []*api.Device{{DeviceName: "d"}})
					}
				}
				if failed {
					continue
				}
				m.running[uid] = names
				for _, name := range names {
					for _, driver := range drivers[name] {
						if !m.prepared[driver][name] {
							t.Fatalf("%s runs, and %s has not prepared %s", uid, driver, name)
						}
					}
				}
			}
		}
		for range 2 { // the last pod of a shared claim may come first
			for _, uid := range []string{"u1", "u2", "u3"} {
				ends(uid, func() bool { return false })
			}
		}
		if len(m.table) > 0 || len(m.prepared["d1"]) > 0 || len(m.prepared["d2"]) > 0 {
			t.Fatalf("after all pods: table %v, prepared %v", m.table, m.prepared)
		}
	})
}
