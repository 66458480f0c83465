package persistent

import (
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sized(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// The state of a pod's volumes ends with the pod, and with the records on the disk.
func TestHas(t *testing.T) {
	s := &Storage{pods: map[string]map[string]podVolume{}, onDisk: map[string]bool{}}
	s.change("begun", "data", func(*podVolume) {})
	s.Undoing("found", true)
	s.Undoing("none", false)
	for uid, want := range map[string]bool{"begun": true, "found": true, "none": false, "other": false} {
		if got := s.Has(uid); got != want {
			t.Errorf("pod %s has volumes: %t", uid, got)
		}
		s.Forget(uid)
		if s.Has(uid) {
			t.Errorf("pod %s has volumes after its end", uid)
		}
	}
}

func TestWhatGrows(t *testing.T) {
	claim := func(status v1.ClaimResourceStatus, allocated, has string, conditions ...v1.PersistentVolumeClaimConditionType) *v1.PersistentVolumeClaim {
		c := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Capacity: sized(has)}}
		if status != "" {
			c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status}
		}
		if allocated != "" {
			c.Status.AllocatedResources = sized(allocated)
		}
		for _, of := range conditions {
			c.Status.Conditions = append(c.Status.Conditions, v1.PersistentVolumeClaimCondition{Type: of, Status: v1.ConditionTrue})
		}
		return c
	}
	shared := func(c *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		return c
	}
	pending := v1.PersistentVolumeClaimFileSystemResizePending
	for _, c := range []struct {
		what  string
		claim *v1.PersistentVolumeClaim
		has   int64
		want  bool
	}{
		{"asked for", claim(v1.PersistentVolumeClaimNodeResizePending, "2", "1"), 1, true},
		{"asked for, by a new process", claim(v1.PersistentVolumeClaimNodeResizePending, "2", "1"), 0, true},
		{"begun", claim(v1.PersistentVolumeClaimNodeResizeInProgress, "2", "1"), 0, true},
		{"done", claim(v1.PersistentVolumeClaimNodeResizeInProgress, "2", "1"), 2, false},
		{"infeasible", claim(v1.PersistentVolumeClaimNodeResizeInfeasible, "2", "1", pending), 1, false},
		{"the resizer is at it", claim(v1.PersistentVolumeClaimControllerResizeInProgress, "2", "1"), 1, false},
		{"not asked for", claim("", "", "1"), 1, false},
		{"asked for by an older resizer", claim("", "", "1", pending), 1, true},
		{"not asked for by a newer one", claim("", "2", "1", pending), 1, false},
		{"done by another node", shared(claim("", "2", "2")), 1, true},
		{"done here for another pod", claim("", "2", "2"), 1, false},
		{"done before it was mounted", shared(claim("", "2", "2")), 0, false},
	} {
		if got := growsNow(c.claim, c.has, 2); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// If another node has grown the volume, this node grows it to the size in the claim, even if a larger size is requested.
func TestHowFarAVolumeGrows(t *testing.T) {
	for status, want := range map[v1.ClaimResourceStatus]int64{
		v1.PersistentVolumeClaimNodeResizePending: 3, v1.PersistentVolumeClaimControllerResizeInProgress: 2,
		v1.PersistentVolumeClaimNodeResizeInfeasible: 2,
	} {
		c := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{
			Capacity: sized("2"), AllocatedResources: sized("3"),
			AllocatedResourceStatuses: map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status},
		}}
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		if size := sizeFor(c, &v1.PersistentVolume{}, 1); size.Value() != want || !growsNow(c, 1, size.Value()) {
			t.Errorf("%s: %s, grown now %t", status, size.String(), growsNow(c, 1, size.Value()))
		}
	}
}
func TestIsPart(t *testing.T) {
	of := &mountinfo.Info{Major: 8, Minor: 1, Root: "/v"}
	for _, c := range []struct {
		m    mountinfo.Info
		want bool
	}{
		{mountinfo.Info{Major: 8, Minor: 1, Root: "/v"}, true},
		{mountinfo.Info{Major: 8, Minor: 1, Root: "/v/part"}, true},
		{mountinfo.Info{Major: 8, Minor: 1, Root: "/v//deleted"}, true},
		{mountinfo.Info{Major: 8, Minor: 1, Root: "/"}, false},
		{mountinfo.Info{Major: 8, Minor: 1, Root: "/volume"}, false},
		{mountinfo.Info{Major: 8, Minor: 2, Root: "/v"}, false},
	} {
		if got := isPart(&c.m, of); got != c.want {
			t.Errorf("%+v: got %t", c.m, got)
		}
	}
	if !isPart(&mountinfo.Info{Root: "/part"}, &mountinfo.Info{Root: "/"}) {
		t.Error("a part of a whole file system is none")
	}
}

// The copies of a mount in a root directory that is bound elsewhere go with the mount. Copies that the kernel leaves count.
func TestIsCopy(t *testing.T) {
	ref := reference{place: "plugins/x/globalmount"}
	of := &mountinfo.Info{Optional: "shared:7"}
	for _, c := range []struct {
		m    mountinfo.Info
		want bool
	}{
		{mountinfo.Info{Mountpoint: "/data/plugins/x/globalmount", Optional: "shared:7"}, true},
		{mountinfo.Info{Mountpoint: "/data/plugins/x/globalmount", Optional: "shared:9 master:7"}, true},
		{mountinfo.Info{Mountpoint: "/data/plugins/x/globalmount"}, false},
		{mountinfo.Info{Mountpoint: "/data/plugins/x/globalmount", Optional: "shared:8"}, false},
		{mountinfo.Info{Mountpoint: "/data/elsewhere", Optional: "shared:7"}, false},
	} {
		if got := ref.isCopy(&c.m, of); got != c.want {
			t.Errorf("%+v: got %t", c.m, got)
		}
	}
}

// The volumes in use are listed again when a pod needs or has another one, and not after other changes. A driver that is called
// each minute must not cause reads of the disk.
func TestNewsOfVolumesInUse(t *testing.T) {
	s := &Storage{pods: map[string]map[string]podVolume{}}
	for _, c := range []struct {
		name string
		how  func(*podVolume)
		want bool
	}{
		{"new", func(*podVolume) {}, true},
		{"wanted", func(h *podVolume) { h.wants = "volume" }, true},
		{"the same", func(h *podVolume) { h.wants = "volume" }, false},
		{"waits", func(h *podVolume) { h.waits = time.Now() }, false},
		{"read", func(h *podVolume) { h.pv = &v1.PersistentVolume{} }, false},
		{"mounted", func(h *podVolume) { h.progress = done }, true},
	} {
		s.change("a", "data", c.how)
		if got, _ := s.TakeNews(); got != c.want {
			t.Errorf("%s: news of volumes in use: %t, want %t", c.name, got, c.want)
		}
	}
}

// The mount of a claim is writable if one of the pod's volumes with the claim is.
func TestMountsReadOnly(t *testing.T) {
	claim := func(name string, readOnly bool) v1.Volume {
		return v1.Volume{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			ClaimName: name, ReadOnly: readOnly}}}
	}
	pod := &v1.Pod{}
	pod.Name = "p"
	pod.Spec.Volumes = []v1.Volume{claim("both", true), claim("both", false), claim("all", true), claim("all", true), claim("none", false),
		{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	for name, want := range map[string]bool{"both": false, "all": true, "none": false, "p-own": false} {
		if got := mountsReadOnly(pod, name); got != want {
			t.Errorf("claim %s: read-only %t, want %t", name, got, want)
		}
	}
}

// A volume that cannot be unstaged is reported by its folder on the host.
func TestStagedFolder(t *testing.T) {
	s := &Storage{Options: Options{RootDir: "/r"}}
	for key, want := range map[string]string{
		"d.example.org/0a1b":                  "/r/plugins/kubernetes.io/csi/d.example.org/0a1b",
		"volumeDevices/pv":                    "/r/plugins/kubernetes.io/csi/volumeDevices/pv",
		fileSystems + "pv":                    "/r/plugins/kubernetes.io/local-volume/mounts/pv",
		"kubernetes.io/local-volume/pv/a-uid": "/r/plugins/kubernetes.io/local-volume/volumeDevices/pv/a-uid",
	} {
		if got := s.stagedFolder(key); got != want {
			t.Errorf("key %s: got %s, want %s", key, got, want)
		}
	}
}
