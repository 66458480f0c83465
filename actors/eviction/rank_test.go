package eviction

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// mi returns a number of mebibytes.
const mi = 1 << 20

// of returns a candidate with one container; figures are in mebibytes.
func of(name string, priority int32, memory, request uint64) candidate {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{
		Priority: &priority, Containers: []v1.Container{{Name: "c"}},
	}}
	if request > 0 {
		q := *resource.NewQuantity(int64(request*mi), resource.BinarySI)
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: q, v1.ResourceEphemeralStorage: q}
	}
	use := &api.MemoryStats{WorkingSetBytes: ptr.To(memory * mi)}
	return candidate{pod: pod, stats: &api.PodStats{PodRef: api.PodReference{Name: name, Namespace: "default", UID: name}, Memory: use,
		Containers: []api.ContainerStats{{Name: "c", Memory: use}}}}
}

func disks(bytes uint64) *api.FsStats {
	return &api.FsStats{UsedBytes: ptr.To(bytes * mi), InodesUsed: ptr.To(bytes)}
}

// on adds a candidate's disk usage, in mebibytes, with as many inodes: its writable layer, its log, an emptyDir, and one in
// memory that does not count.
func (c candidate) on(layer, log, volume uint64) candidate {
	c.stats.Containers[0].Rootfs, c.stats.Containers[0].Logs = disks(layer), disks(log)
	c.stats.VolumeStats = []api.VolumeStats{{Name: "v", FsStats: *disks(volume)}, {Name: "m", FsStats: *disks(1000)}}
	c.stats.EphemeralStorage = disks(layer + log + volume)
	c.pod.Spec.Volumes = []v1.Volume{
		{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "m", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
	}
	return c
}

// keeps adds the agent's data for a candidate: /etc/hosts and termination logs, which belong to no container or volume.
func (c candidate) keeps(mebibytes uint64) candidate {
	*c.stats.EphemeralStorage.UsedBytes += mebibytes * mi
	*c.stats.EphemeralStorage.InodesUsed += mebibytes
	return c
}

func names(list []candidate) string {
	var out []string
	for _, c := range list {
		out = append(out, c.pod.Name)
	}
	return strings.Join(out, " ")
}

func TestRanking(t *testing.T) {
	processes := func(name string, priority int32, n uint64) candidate {
		c := of(name, priority, 0, 0)
		c.stats.ProcessStats = &api.ProcessStats{ProcessCount: &n}
		return c
	}
	all, split := Layout{}, Layout{Images: onImageFs, Containers: onImageFs}
	for name, c := range map[string]struct {
		signal Signal
		layout Layout
		list   []candidate
		want   string
	}{
		"above its request before priority": {MemoryAvailable, all,
			[]candidate{of("low", 0, 100, 200), of("high", 9, 201, 200)}, "high low"},
		"priority before how much": {AllocatableMemoryAvailable, all,
			[]candidate{of("high", 9, 900, 100), of("low", 1, 300, 100)}, "low high"},
		"by how much above the request": {MemoryAvailable, all,
			[]candidate{of("big", 0, 900, 800), of("small", 0, 300, 100)}, "small big"},
		"what is nearest to its request": {MemoryAvailable, all,
			[]candidate{of("far", 0, 100, 800), of("near", 0, 90, 100)}, "near far"},
		"by name at last": {MemoryAvailable, all, []candidate{of("b", 0, 1, 0), of("a", 0, 1, 0)}, "a b"},
		"one disk: all that lies there": {NodeFsAvailable, all,
			[]candidate{of("layer", 0, 0, 0).on(5, 0, 0), of("sum", 0, 0, 0).on(2, 2, 2), of("log", 0, 0, 0).on(0, 4, 0)},
			"sum layer log"},
		"nodefs alone: logs and volumes": {NodeFsInodesFree, split,
			[]candidate{of("layer", 0, 0, 0).on(5, 0, 0), of("log", 0, 0, 0).on(0, 4, 0), of("volume", 0, 0, 0).on(0, 0, 6)},
			"volume log layer"},
		"nodefs without the logs": {NodeFsAvailable, Layout{Logs: elsewhere},
			[]candidate{of("log", 0, 0, 0).on(0, 9, 1), of("volume", 0, 0, 0).on(0, 0, 6)}, "volume log"},
		"imagefs alone: layers": {ImageFsAvailable, split,
			[]candidate{of("volume", 0, 0, 0).on(0, 0, 6), of("layer", 0, 0, 0).on(5, 0, 0)}, "layer volume"},
		"what is kept for a pod": {NodeFsAvailable, all,
			[]candidate{of("innocent", 0, 0, 0).on(3, 3, 3), of("hosts", 0, 0, 0).on(1, 1, 1).keeps(10)}, "hosts innocent"},
		"what is kept for a pod, of nodefs alone": {NodeFsInodesFree, split,
			[]candidate{of("innocent", 0, 0, 0).on(9, 3, 3), of("hosts", 0, 0, 0).on(1, 1, 1).keeps(10)}, "hosts innocent"},
		"what is kept for a pod, beside layers": {ImageFsAvailable, split,
			[]candidate{of("layer", 0, 0, 0).on(5, 0, 0), of("hosts", 0, 0, 0).on(1, 0, 0).keeps(10)}, "layer hosts"},
		"what was requested of the disk": {NodeFsAvailable, all,
			[]candidate{of("within", 0, 0, 50).on(40, 0, 0), of("above", 5, 0, 10).on(11, 0, 0)}, "above within"},
		"processes: priority first": {PIDAvailable, all,
			[]candidate{processes("many", 9, 900), processes("few", 1, 2), processes("some", 1, 5)}, "some few many"},
	} {
		rank(c.signal, c.layout.on(c.signal), c.list)
		if got := names(c.list); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// For any pods, none within its request precedes one above, and the order is independent of the list's.
func TestRankingIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []candidate
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			list = append(list, of(fmt.Sprint("p", i), rapid.Int32Range(0, 2).Draw(t, "priority"),
				rapid.Uint64Range(0, 4).Draw(t, "memory"), rapid.Uint64Range(0, 3).Draw(t, "request")))
		}
		other := rapid.Permutation(list).Draw(t, "other")
		rank(MemoryAvailable, contents{}, list)
		rank(MemoryAvailable, contents{}, other)
		if names(list) != names(other) {
			t.Fatalf("%s, and %s", names(list), names(other))
		}
		above := true
		for _, c := range list {
			request := c.pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory]
			now := workingSet(c.stats.Memory) > request.Value()
			if now && !above {
				t.Fatalf("%s", names(list))
			}
			above = now
		}
	})
}

func TestWhoMayBeEvicted(t *testing.T) {
	pod := func(priority *int32, class, source string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Priority: priority, PriorityClassName: class}}
		if source != "" {
			p.Annotations = map[string]string{"kubernetes.io/config.source": source}
		}
		return p
	}
	for name, c := range map[string]struct {
		pod           *v1.Pod
		plain, static bool
	}{
		"of the API server":  {pod(nil, "", "api"), true, true},
		"of high priority":   {pod(ptr.To[int32](1999999999), "", "api"), true, true},
		"critical":           {pod(ptr.To[int32](2000000000), "", "api"), false, false},
		"static":             {pod(nil, "", "file"), false, true},
		"static, critical":   {pod(ptr.To[int32](2000001000), "", "file"), false, false},
		"static, of a class": {pod(nil, "system-node-critical", "file"), false, false},
	} {
		if got := evictable(c.pod, false); got != c.plain {
			t.Errorf("%s: %v", name, got)
		}
		if got := evictable(c.pod, true); got != c.static {
			t.Errorf("%s, with the switch: %v", name, got)
		}
	}
}

func TestTheMessageHasTheArithmetic(t *testing.T) {
	l := limit{signal: MemoryAvailable, field: hardField, text: "100Mi"}
	got, _ := explain(l, Reading{60*mi + 5, 1000 * mi}, of("p", 0, 500, 100))
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. " +
		"Container c was using 500Mi, request is 100Mi, has larger consumption of memory. "; got != want {
		t.Errorf("%s", got)
	}
	l = limit{signal: NodeFsAvailable, field: hardField, text: "10%"}
	got, _ = explain(l, Reading{7 * mi, 1000 * mi}, of("p", 0, 0, 0).on(3, 4, 0))
	if want := "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 7Mi. " +
		"Container c was using 7Mi, request is 0, has larger consumption of ephemeral-storage. "; got != want {
		t.Errorf("%s", got)
	}
	l = limit{signal: NodeFsInodesFree, field: hardField, text: "5%"}
	got, _ = explain(l, Reading{7, 1000}, of("p", 0, 0, 0).on(3, 4, 0))
	if want := "The node was low on resource: inodes. Threshold quantity: 50, available: 7. "; got != want {
		t.Errorf("%s", got)
	}
}

// Init containers and pod-level requests count too; the Event has the same for programs.
func TestWhatTheEventOfAnEvictionHas(t *testing.T) {
	c := of("p", 0, 500, 100)
	c.pod.Spec.InitContainers = []v1.Container{{Name: "side"}, {Name: "other"}}
	c.stats.Containers = append(c.stats.Containers, api.ContainerStats{Name: "side", Memory: &api.MemoryStats{WorkingSetBytes: ptr.To[uint64](7 * mi)}})
	c.pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("200Mi")}}
	text, annotations := explain(limit{signal: MemoryAvailable, field: hardField, text: "100Mi"}, Reading{60 * mi, 1000 * mi}, c)
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. " +
		"Pod p was using 500Mi, request is 200Mi, has larger consumption of memory. " +
		"Container c was using 500Mi, request is 100Mi, has larger consumption of memory. " +
		"Container side was using 7Mi, request is 0, has larger consumption of memory. "; text != want {
		t.Errorf("%s", text)
	}
	want := map[string]string{"starved_resource": "memory", "offending_containers": "c,side", "offending_containers_usage": "500Mi,7Mi",
		"offending_pod": "p", "offending_pod_usage": "500Mi"}
	if !maps.Equal(annotations, want) {
		t.Errorf("%v, want %v", annotations, want)
	}
	_, annotations = explain(limit{signal: PIDAvailable, field: hardField, text: "5%"}, Reading{7, 1000}, c)
	want = map[string]string{"starved_resource": "pids", "offending_containers": "", "offending_containers_usage": ""}
	if !maps.Equal(annotations, want) {
		t.Errorf("%v, want %v", annotations, want)
	}
}

func TestGrace(t *testing.T) {
	pod := func(own *int64) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: own}} }
	for name, c := range map[string]struct {
		field string
		own   *int64
		most  int32
		want  int64
	}{
		"at once":               {hardField, ptr.To[int64](60), 30, 1},
		"the pod's":             {softField, ptr.To[int64](20), 30, 20},
		"the pod's by default":  {softField, nil, 60, 30},
		"at most":               {softField, ptr.To[int64](60), 30, 30},
		"none is set":           {softField, ptr.To[int64](60), 0, 1},
		"negative: the pod's":   {softField, ptr.To[int64](60), -1, 60},
		"a second at the least": {softField, ptr.To[int64](0), 30, 1},
	} {
		if got := *grace(limit{field: c.field}, pod(c.own), c.most); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestLimitsOfLocalStorage(t *testing.T) {
	sized := func(c candidate, size string) candidate {
		c.pod.Spec.Volumes[0].EmptyDir.SizeLimit = ptr.To(resource.MustParse(size))
		c.pod.Spec.Volumes[1].EmptyDir.SizeLimit = ptr.To(resource.MustParse("1Mi"))
		return c
	}
	limited := func(c candidate, size string) candidate {
		c.pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(size)}
		return c
	}
	two := func(c candidate, size string) candidate { // of another container the limit of the pod is larger
		c = limited(c, size)
		c.pod.Spec.Containers = append(c.pod.Spec.Containers, *c.pod.Spec.Containers[0].DeepCopy())
		c.pod.Spec.Containers[1].Name = "other"
		return c
	}
	sidecar := func(c candidate) candidate { // the container is a sidecar
		c.pod.Spec.InitContainers, c.pod.Spec.Containers = c.pod.Spec.Containers[:1], c.pod.Spec.Containers[1:]
		c.pod.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		return c
	}
	for name, c := range map[string]struct {
		c       candidate
		bounded bool
		want    string
	}{
		"a sidecar":      {sidecar(two(of("p", 0, 0, 0).on(3, 3, 0), "5Mi")), true, `Container c exceeded its local ephemeral storage limit "5Mi". `},
		"no limits":      {of("p", 0, 0, 0).on(9, 9, 9), false, ""},
		"at the limit":   {sized(of("p", 0, 0, 0).on(0, 0, 9), "9Mi"), true, ""},
		"emptyDir":       {sized(of("p", 0, 0, 0).on(0, 0, 10), "9Mi"), true, `Usage of EmptyDir volume "v" exceeds the limit "9Mi". `},
		"emptyDir, zero": {sized(of("p", 0, 0, 0).on(0, 0, 10), "0"), false, ""},
		"the whole pod":  {limited(of("p", 0, 0, 0).on(3, 3, 3), "8Mi"), true, "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. "},
		"what is kept":   {limited(of("p", 0, 0, 0).on(3, 3, 1).keeps(2), "8Mi"), true, "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. "},
		"one container":  {two(of("p", 0, 0, 0).on(3, 3, 0), "5Mi"), true, `Container c exceeded its local ephemeral storage limit "5Mi". `},
		"below":          {two(of("p", 0, 0, 0).on(3, 2, 5), "5Mi"), true, ""},
	} {
		if _, got := c.c.exceeds(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := bounded(c.c.pod); got != c.bounded {
			t.Errorf("%s: bounded %v", name, got)
		}
	}
}

func TestWhatLiesWhere(t *testing.T) {
	node, images, other := disk{device: 1}, disk{device: 2}, disk{device: 3}
	logs := disk{device: 4, space: Reading{Capacity: 5}}
	subvolume := disk{device: 5} // of the node's file system, by its size
	for name, c := range map[string]struct {
		images, containers, logs disk
		want                     map[Signal]string
	}{
		"one disk": {node, node, node, map[Signal]string{NodeFsAvailable: "images layers files logs",
			ImageFsAvailable: "images layers files logs"}},
		"images and containers apart": {images, images, node, map[Signal]string{NodeFsInodesFree: "files logs",
			ImageFsInodesFree: "images layers"}},
		"images apart": {images, node, subvolume, map[Signal]string{NodeFsAvailable: "layers files logs", ImageFsAvailable: "images"}},
		"three disks": {images, other, node, map[Signal]string{NodeFsAvailable: "files logs", ImageFsAvailable: "images",
			ContainerFsAvailable: "layers"}},
		"logs apart":       {node, node, logs, map[Signal]string{NodeFsAvailable: "images layers files"}},
		"logs with images": {logs, logs, logs, map[Signal]string{NodeFsAvailable: "files", ImageFsAvailable: "images layers logs"}},
	} {
		l := layoutOf(node, c.images, c.containers, c.logs)
		for s, want := range c.want {
			on := l.on(s)
			var got []string
			for word, there := range map[string]bool{"images": on.images, "layers": on.layers, "files": on.files,
				"logs": on.logs} {
				if there {
					got = append(got, word)
				}
			}
			if len(got) != len(strings.Fields(want)) || on.images != strings.Contains(want, "images") ||
				on.layers != strings.Contains(want, "layers") || on.logs != strings.Contains(want, "logs") {
				t.Errorf("%s: %s has %v, want %s", name, s, got, want)
			}
		}
	}
}
