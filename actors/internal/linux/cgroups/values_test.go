package cgroups

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
)

// list returns a resource list from pairs, e.g. "cpu", "100m", "memory", "1Mi".
func list(t *testing.T, pairs ...string) v1.ResourceList {
	t.Helper()
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func podOf(sets ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{}
	for _, r := range sets {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: r})
	}
	return p
}

func TestPodValues(t *testing.T) {
	usual := Settings{CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond}
	set := func(requests, limits v1.ResourceList) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: requests, Limits: limits}
	}
	both := set(list(t, "cpu", "100m", "memory", "1Mi"), list(t, "cpu", "200m", "memory", "2Mi"))
	sure := set(list(t, "cpu", "2", "memory", "1Mi"), list(t, "cpu", "2", "memory", "1Mi"))
	none := set(nil, nil)
	levelled := podOf(none, none)
	levelled.Spec.Resources = &v1.ResourceRequirements{Requests: list(t, "cpu", "1"),
		Limits: list(t, "cpu", "1500m", "memory", "8Mi")}
	withInit := podOf(both)
	withInit.Spec.InitContainers = []v1.Container{{Resources: set(list(t, "cpu", "500m"), nil)}}
	heavy := podOf(both)
	heavy.Spec.Overhead = list(t, "cpu", "50m", "memory", "1Mi")
	pages := podOf(set(list(t, "cpu", "1", "hugepages-2Mi", "4Mi"), list(t, "hugepages-2Mi", "4Mi")))
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		s    Settings
		want Values
	}{
		{"best effort", podOf(none), usual, Values{CPUShares: 2, CPUQuota: None, Memory: None, PIDs: None}},
		{"burstable, all limited", podOf(both, both), usual,
			Values{CPUShares: 204, CPUQuota: 40000, CPUPeriod: 100000, Memory: 4 << 20, PIDs: None}},
		{"burstable, one not limited", podOf(both, none), usual,
			Values{CPUShares: 102, CPUQuota: None, Memory: None, PIDs: None}},
		{"guaranteed", podOf(sure, sure), usual, Values{CPUShares: 4096, CPUQuota: 400000, CPUPeriod: 100000, Memory: 2 << 20,
			PIDs: None}},
		{"no quota", podOf(sure), Settings{CPUCFSQuotaPeriod: time.Second},
			Values{CPUShares: 2048, CPUQuota: None, Memory: 1 << 20, PIDs: None}},
		{"CPUs of its own", podOf(sure), Settings{CPUCFSQuota: true, CPUCFSQuotaPeriod: time.Second,
			UnlimitedCPU: func(*v1.Pod) bool { return true }}, Values{CPUShares: 2048, CPUQuota: None, Memory: 1 << 20, PIDs: None}},
		{"another period", podOf(sure), Settings{CPUCFSQuota: true, CPUCFSQuotaPeriod: 10 * time.Millisecond},
			Values{CPUShares: 2048, CPUQuota: 20000, CPUPeriod: 10000, Memory: 1 << 20, PIDs: None}},
		{"few processes", podOf(none), Settings{PodPIDsLimit: 9}, Values{CPUShares: 2, CPUQuota: None, Memory: None, PIDs: 9}},
		{"the pod's own", levelled, usual, Values{CPUShares: 1024, CPUQuota: 150000, CPUPeriod: 100000, Memory: 8 << 20,
			PIDs: None}},
		{"an init container that is not limited", withInit, usual,
			Values{CPUShares: 512, CPUQuota: None, Memory: None, PIDs: None}},
		{"overhead", heavy, usual, Values{CPUShares: 153, CPUQuota: 25000, CPUPeriod: 100000, Memory: 3 << 20, PIDs: None}},
		{"huge pages", pages, Settings{HugePageSizes: []string{"2MB", "1GB"}},
			Values{CPUShares: 1024, CPUQuota: None, Memory: None, PIDs: None,
				HugePages: map[string]uint64{"2MB": 4 << 20, "1GB": 0}}},
	} {
		if c.want.HugePages == nil {
			c.want.HugePages = map[string]uint64{}
		}
		if got := PodValues(c.pod, c.s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// The burstable class gets shares for the sum of its pods' requests. Other pods do not count.
func TestClassValues(t *testing.T) {
	some := podOf(v1.ResourceRequirements{Requests: list(t, "cpu", "300m")})
	sure := podOf(v1.ResourceRequirements{Requests: list(t, "cpu", "1", "memory", "1"),
		Limits: list(t, "cpu", "1", "memory", "1")})
	pods := []*v1.Pod{some, sure, some, podOf(v1.ResourceRequirements{})}
	s := Settings{HugePageSizes: []string{"2MB"}}
	all := map[string]uint64{"2MB": unbounded}
	if got := ClassValues(v1.PodQOSBurstable, pods, Capacity{}, s); !reflect.DeepEqual(got, Values{CPUShares: 614, HugePages: all}) {
		t.Errorf("burstable: %+v", got)
	}
	if got := ClassValues(v1.PodQOSBestEffort, pods, Capacity{}, s); !reflect.DeepEqual(got, Values{CPUShares: 2, HugePages: all}) {
		t.Errorf("best effort: %+v", got)
	}
}

func TestNodeValues(t *testing.T) {
	machine := Capacity{MilliCPU: 4000, Memory: 8 << 30, PIDs: 1000}
	s := Settings{EnforcePods: true, HugePageSizes: []string{"2MB"},
		Reserved: list(t, "cpu", "500m", "memory", "1Gi", "pid", "100")}
	pages := map[string]uint64{"2MB": unbounded} // as in the kubelet: the pods have their own limits
	if got, want := NodeValues(nil, machine, s), (Values{CPUShares: 3584, Memory: 7 << 30, PIDs: 900,
		HugePages: pages}); !reflect.DeepEqual(got, want) {
		t.Errorf("enforced: %+v, want %+v", got, want)
	}
	s.EnforcePods = false
	if got, want := NodeValues(nil, machine, s), (Values{CPUShares: 4096, Memory: 8 << 30, PIDs: 1000,
		HugePages: pages}); !reflect.DeepEqual(got, want) {
		t.Errorf("not enforced: %+v, want %+v", got, want)
	}
	s.EnforcePods, s.Reserved = true, list(t, "memory", "9Gi")
	if got := NodeValues(nil, machine, s).Memory; got != 1 { // 0 would mean no limit
		t.Errorf("with more reserved than there is: %d", got)
	}
}

// qosReserved keeps a part of the memory that the pods of a class request from lower classes.
func TestMemoryThatIsReservedForClasses(t *testing.T) {
	sure := podOf(v1.ResourceRequirements{Requests: list(t, "cpu", "1", "memory", "1Gi"), Limits: list(t, "cpu", "1", "memory", "1Gi")})
	some := podOf(v1.ResourceRequirements{Requests: list(t, "memory", "512Mi")})
	pods := []*v1.Pod{some, sure, some, podOf(v1.ResourceRequirements{})}
	machine := Capacity{Memory: 8 << 30}
	for percent, want := range map[int64][2]int64{ // in MiB: burstable, best effort
		0: {7168, 7168}, 50: {6656, 6144}, 100: {6144, 5120},
	} {
		s := Settings{Reserved: list(t, "memory", "1Gi"), QOSReserved: &percent}
		got := [2]int64{ClassValues(v1.PodQOSBurstable, pods, machine, s).Memory >> 20,
			ClassValues(v1.PodQOSBestEffort, pods, machine, s).Memory >> 20}
		if got != want {
			t.Errorf("%d%%: %v, want %v", percent, got, want)
		}
	}
	all := int64(100)
	if got := ClassValues(v1.PodQOSBestEffort, pods, Capacity{Memory: 1 << 30}, Settings{QOSReserved: &all}).Memory; got != 0 {
		t.Errorf("with nothing left the limit is %d, and there must be none", got)
	}
}

func TestReservationValues(t *testing.T) {
	r := Reservation{Reserved: list(t, "cpu", "500m", "memory", "1Gi", "pid", "100", "ephemeral-storage", "1Gi")}
	if got, want := r.Values(Settings{}), (Values{CPUShares: 512, Memory: 1 << 30, PIDs: 100}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.Compressible = true
	if got, want := r.Values(Settings{}), (Values{CPUShares: 512}); !reflect.DeepEqual(got, want) {
		t.Errorf("compressible: %+v, want %+v", got, want)
	}
	r = Reservation{Reserved: list(t, "memory", "1Mi")}
	if got, want := r.Values(Settings{}), (Values{Memory: 1 << 20}); !reflect.DeepEqual(got, want) {
		t.Errorf("memory alone: %+v, want %+v", got, want)
	}
}

func TestGroupsOfOthersByName(t *testing.T) {
	for text, want := range map[string][2]string{ // with cgroupfs, with systemd
		"/system.slice": {"/system.slice", "/system.slice"}, "kube": {"/kube", "/kube.slice"}, "/": {"/", "/"},
		"/a/b":                     {"/a/b", "/b.slice"},
		"/run.slice/run-k_d.slice": {"/run.slice/run-k_d.slice", "/run.slice/run-k_d.slice"},
	} {
		if got := [2]string{parseGroup(text, false).Cgroupfs(), parseGroup(text, true).Systemd()}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// The memory that is protected for a pod is also protected for all its parent groups (KEP-2570).
func TestMemory_ReservedForRequests(t *testing.T) {
	some := podOf(v1.ResourceRequirements{Requests: list(t, "memory", "1Mi")})
	sure := podOf(v1.ResourceRequirements{Requests: list(t, "cpu", "1", "memory", "2Mi"), Limits: list(t, "cpu", "1", "memory", "2Mi")})
	pods := []*v1.Pod{some, sure, some, podOf(v1.ResourceRequirements{})}
	reserved := Reservation{Reserved: list(t, "memory", "4Mi")}
	all := func(s Settings) []map[string]string {
		return []map[string]string{
			NodeValues(pods, Capacity{}, s).Unified, ClassValues(v1.PodQOSBurstable, pods, Capacity{}, s).Unified,
			ClassValues(v1.PodQOSBestEffort, pods, Capacity{}, s).Unified, reserved.Values(s).Unified,
			PodValues(some, s).Unified, PodValues(sure, s).Unified, PodValues(pods[3], s).Unified,
		}
	}
	for _, c := range []struct {
		s    Settings
		want []map[string]string
	}{
		{Settings{ProtectMemory: true}, make([]map[string]string, 7)},
		{Settings{MemoryQoS: true}, []map[string]string{{"memory.min": "0"}, {"memory.low": "0"}, nil, {"memory.min": "4194304"}, nil, nil, nil}},
		{Settings{MemoryQoS: true, ProtectMemory: true}, []map[string]string{{"memory.min": "4194304"}, {"memory.low": "2097152"}, nil,
			{"memory.min": "4194304"}, {"memory.low": "1048576"}, {"memory.min": "2097152"}, nil}},
	} {
		if got := all(c.s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.s, got, c.want)
		}
	}
}

// Weights on cgroup v2 are proportional to the requests, as in the kubelet.
func TestCPUWeight(t *testing.T) {
	for _, c := range []struct{ shares, want uint64 }{
		{0, 0}, {1, 1}, {2, 1}, {translate.CPUShares(50), 2}, {translate.CPUShares(200), 8}, {translate.CPUShares(1000), 39},
		{translate.CPUShares(2000), 79}, {262144, 10000}, {1 << 40, 10000},
	} {
		r := resources(Values{CPUShares: c.shares}, true, false)
		if r.CpuWeight != c.want || r.CpuShares != 0 {
			t.Errorf("%d shares: weight %d and %d shares, want weight %d", c.shares, r.CpuWeight, r.CpuShares, c.want)
		}
	}
	if r := resources(Values{CPUShares: 2048}, false, false); r.CpuShares != 2048 || r.CpuWeight != 0 {
		t.Errorf("on cgroup v1: %d shares, weight %d", r.CpuShares, r.CpuWeight)
	}
}
