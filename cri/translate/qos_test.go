package translate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func TestQOSClass(t *testing.T) {
	full := v1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		want v1.PodQOSClass
	}{
		{"nothing", v1.PodSpec{Containers: []v1.Container{{}}}, v1.PodQOSBestEffort},
		{"zero", v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("0", "0")}}}},
			v1.PodQOSBestEffort},
		{"storage alone", v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}}}}}, v1.PodQOSBestEffort},
		{"all equal", v1.PodSpec{Containers: []v1.Container{{Resources: full}, {Resources: full}}}, v1.PodQOSGuaranteed},
		{"one without", v1.PodSpec{Containers: []v1.Container{{Resources: full}, {}}}, v1.PodQOSBurstable},
		{"init without", v1.PodSpec{Containers: []v1.Container{{Resources: full}}, InitContainers: []v1.Container{{}}},
			v1.PodQOSBurstable},
		{"one of both", v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("1", ""),
			Limits: list("1", "")}}}}, v1.PodQOSBurstable},
		{"less than the limit", v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: list("1", "1Gi"), Limits: list("1", "2Gi")}}}}, v1.PodQOSBurstable},
		{"limits alone", v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list("1", "1Gi")}}}},
			v1.PodQOSBurstable},
		{"pod's own, guaranteed", v1.PodSpec{Resources: &full, Containers: []v1.Container{{}}}, v1.PodQOSGuaranteed},
		{"pod's own, requests", v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: list("1", "1Gi")},
			Containers: []v1.Container{{Resources: full}}}, v1.PodQOSBurstable},
		{"pod's own, nothing in it", v1.PodSpec{Resources: &v1.ResourceRequirements{},
			Containers: []v1.Container{{Resources: full}}}, v1.PodQOSBestEffort},
	} {
		if got := QOSClass(&v1.Pod{Spec: tc.spec}); got != tc.want {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
	known := &v1.Pod{Status: v1.PodStatus{QOSClass: v1.PodQOSGuaranteed}}
	if got := QOSClass(known); got != v1.PodQOSGuaranteed {
		t.Errorf("the status says guaranteed, not %s", got)
	}
}

func TestOOMScore(t *testing.T) {
	const capacity = 1000 << 20
	always := v1.ContainerRestartPolicyAlways
	burstable := func(memory string) v1.Container {
		return v1.Container{Name: "c" + memory, Resources: v1.ResourceRequirements{Requests: list("1m", memory)}}
	}
	for _, tc := range []struct {
		name string
		pod  v1.Pod
		of   int // the index of the tested container, negative for an init container
		want int64
	}{
		{"a tenth", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{burstable("100Mi")}}}, 0, 900},
		{"no memory", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{burstable("")}}}, 0, 999},
		{"everything", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{burstable("1000Mi")}}}, 0, 3},
		{"more than there is", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{burstable("9000Mi")}}}, 0, 3},
		{"best effort", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}, 0, 1000},
		{"sidecar", v1.Pod{Spec: v1.PodSpec{
			Containers:     []v1.Container{burstable("300Mi"), burstable("200Mi")},
			InitContainers: []v1.Container{{Name: "s", RestartPolicy: &always}},
		}}, -1, 800},
		{"init container", v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{burstable("300Mi")}, InitContainers: []v1.Container{{Name: "s"}},
		}}, -1, 999},
	} {
		container := &tc.pod.Spec.Containers[0]
		if tc.of < 0 {
			container = &tc.pod.Spec.InitContainers[0]
		}
		if got := oomScoreAdj(&tc.pod, container, capacity); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
	if got := oomScoreAdj(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{burstable("1Mi")}}}, &v1.Container{},
		0); got != 999 {
		t.Errorf("a machine whose memory is not known: %d", got)
	}
}

func TestCPUConversions(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, 1: 2, 2: 2, 10: 10, 1000: 1024, 300_000: 262144} {
		if got := CPUShares(milli); got != want {
			t.Errorf("%d m: %d shares, want %d", milli, got, want)
		}
	}
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 10: 1000, 250: 25000, 2000: 200000} {
		if got := CPUQuota(milli, 100_000); got != want {
			t.Errorf("%d m: quota %d, want %d", milli, got, want)
		}
	}
	for bytes, want := range map[int64]string{0: "0B", 512: "512B", 2048 << 10: "2MB", 1 << 30: "1GB", 64 << 10: "64KB",
		32 << 20: "32MB"} {
		if got := HugePageUnit(bytes); got != want {
			t.Errorf("%d bytes: %s, want %s", bytes, got, want)
		}
	}
}
