package volumes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

var anyTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// mounts judges the outcome of a mount of a pod with this state.
func mounts(s state, pod *v1.Pod, now time.Time, out mountOutcome) verdict {
	before := s
	s.last = &out
	return judge(now, operation{Desired: pod, Actual: before}, verdict{Actual: s})
}

// Each volume has its own back-off. A volume that failed often waits long, and does not delay one that has just failed. A
// mounted volume is left alone.
func TestEachVolumeHasItsOwnBackOff(t *testing.T) {
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("fine"), volumestest.EmptyDirVolume("often"), volumestest.EmptyDirVolume("once"))
	if only := (state{}).due(pod, anyTime, false); len(only) != 0 {
		t.Errorf("first %v are mounted", only)
	}
	v := mounts(state{volumes: map[string]volumeState{"often": {fails: 3}}}, pod, anyTime, mountOutcome{volumes: []volumeOutcome{
		{name: "fine", path: "/fine"}, {name: "often", err: errors.New("x")}, {name: "once", err: errors.New("y")}}})
	if v.Err == nil || v.Err.Error() != `volume "often": x; volume "once": y` || !v.Again.Equal(anyTime.Add(kinds.Retry.First)) {
		t.Fatalf("%+v", v)
	}
	for i, want := range []struct {
		volume string
		after  time.Duration
	}{{"often", 4 * time.Second}, {"once", kinds.Retry.First}} {
		if m := v.Actual.failed("u")[i]; m.UID != "u" || m.Volume != want.volume ||
			!m.Reason.RetryAt.Equal(anyTime.Add(want.after)) {
			t.Errorf("told %+v, want %+v", m, want)
		}
	}
	now := v.Again
	if only := v.Actual.due(pod, now, false); !slices.Equal(only, []string{"once"}) {
		t.Errorf("then %v are mounted", only)
	}
	v = mounts(v.Actual, pod, now, mountOutcome{only: []string{"once"}, volumes: []volumeOutcome{{name: "once", path: "/once"}}})
	if now = anyTime.Add(4 * time.Second); v.Err == nil || !v.Again.Equal(now) {
		t.Fatalf("%+v", v)
	}
	if only := v.Actual.due(pod, now, false); !slices.Equal(only, []string{"often"}) {
		t.Errorf("last %v are mounted", only)
	}
	v = mounts(v.Actual, pod, now, mountOutcome{only: []string{"often"}, volumes: []volumeOutcome{{name: "often", path: "/often"}}})
	want := map[string]string{"fine": "/fine", "often": "/often", "once": "/once"}
	if v.Err != nil || !v.Again.IsZero() || fmt.Sprint(v.Actual.paths()) != fmt.Sprint(want) {
		t.Errorf("%+v", v)
	}
}

// A volume that failed permanently is not due again. A change of objects makes only the volumes that hold objects due.
func TestWhatIsDue(t *testing.T) {
	config := v1.Volume{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}
	pod := volumestest.PodWith("u", config, volumestest.EmptyDirVolume("refused"), volumestest.EmptyDirVolume("later"), volumestest.EmptyDirVolume("mounted"))
	later := anyTime.Add(time.Minute)
	no := errors.New("no")
	s := state{volumes: map[string]volumeState{
		"mounted": {path: "/m"}, "config": {err: no, fails: 1, again: later}, "later": {err: no, fails: 1, again: later},
		"refused": {err: kinds.Permanent("%w", no), fails: 1}}}
	for _, c := range []struct {
		now     time.Time
		changed bool
		want    []string
	}{{anyTime, false, nil}, {later, false, []string{"config", "later"}}, {anyTime, true, []string{"config"}}} {
		if due := s.due(pod, c.now, c.changed); !slices.Equal(due, c.want) {
			t.Errorf("%+v: due are %v", c, due)
		}
	}
	v := mounts(s, pod, anyTime, mountOutcome{only: []string{"config"}, volumes: []volumeOutcome{{name: "config", path: "/c"}}})
	if !v.Again.Equal(later) || len(v.Actual.failed("u")) != 2 {
		t.Errorf("%+v", v)
	}
	v = mounts(v.Actual, pod, later, mountOutcome{only: []string{"later"}, volumes: []volumeOutcome{{name: "later", path: "/l"}}})
	if !v.Again.IsZero() || v.Err == nil {
		t.Errorf("%+v", v)
	}
}

// A failure of the folder is a failure of all its volumes, and so is an operation that did not end.
func TestAFolderThatCannotBeMade(t *testing.T) {
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))
	no := mountOutcome{volumes: []volumeOutcome{{err: errors.New("no disk")}}}
	v := mounts(state{}, pod, anyTime, no)
	now := anyTime.Add(kinds.Retry.First)
	only := v.Actual.due(pod, now, false)
	if !v.Again.Equal(now) || v.Err.Error() != "no disk" || !slices.Equal(only, []string{"a"}) {
		t.Fatalf("%+v, %v are mounted", v, only)
	}
	no.only = []string{"a"}
	if v = mounts(v.Actual, pod, now, no); !v.Again.Equal(now.Add(2 * kinds.Retry.First)) {
		t.Errorf("%+v", v)
	}
	v = judge(now, operation{Desired: pod}, verdict{Err: fmt.Errorf("no end")})
	m := v.Actual.failed("u")
	if len(m) != 1 || m[0].Reason.Message != "no end" || m[0].Reason.Permanent || !v.Again.Equal(now.Add(kinds.Retry.First)) {
		t.Errorf("%+v", v)
	}
}

// If the folder failed when some volumes were due, all volumes are mounted, because the due ones are no longer known.
func TestAFolderThatFailedOnceHasAllMounted(t *testing.T) {
	d := driver{newDisk(t)}
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"), volumestest.EmptyDirVolume("b"))
	first, err := d.Ensure(t.Context(), operation{Key: "u", Desired: pod, Began: anyTime})
	known := judge(anyTime, operation{Key: "u", Desired: pod}, verdict{Actual: first, Err: err}).Actual
	again := known.after(mountOutcome{only: []string{"a"}, volumes: []volumeOutcome{{err: errors.New("too many open files")}}}, anyTime)
	later := anyTime.Add(time.Minute)
	s, err := d.Ensure(t.Context(), operation{Key: "u", Desired: pod, Began: later, Actual: again})
	if err != nil || s.last == nil || len(s.last.paths()) != 2 {
		t.Fatalf("mounted is %+v, %v", s.last, err)
	}
	if v := judge(later, operation{Key: "u", Desired: pod}, verdict{Actual: s}); v.Err != nil || !v.Again.IsZero() {
		t.Errorf("%+v", v)
	}
}

// A mount that a container made on an emptyDir may go: then containers are not kept from starting.
func TestEnsure_MountOfAContainerIsGone(t *testing.T) {
	d := driver{newDisk(t)}
	pod := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))
	first, err := d.Ensure(t.Context(), operation{Key: "u", Desired: pod, Began: anyTime})
	known := judge(anyTime, operation{Key: "u", Desired: pod}, verdict{Actual: first, Err: err}).Actual
	was := known.volumes["a"]
	was.mounts = true
	known.volumes["a"] = was
	s, err := d.Ensure(t.Context(), operation{Key: "u", Desired: pod, Began: anyTime, Actual: known})
	if err != nil || s.last != nil || len(s.mounts()) > 0 || s.volumes["a"].path == "" || !known.volumes["a"].mounts {
		t.Errorf("got %+v, %v, want the volume without a mount, and the earlier state unchanged", s, err)
	}
}

// The back-off is the kubelet's.
func TestBackOff(t *testing.T) {
	var got []string
	for n := range 11 {
		got = append(got, kinds.Retry.After(n+1, 0).String())
	}
	if want := "500ms 1s 2s 4s 8s 16s 32s 1m4s 2m2s 2m2s 2m2s"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

func TestSameVolumes(t *testing.T) {
	group := int64(1)
	a := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))
	grouped := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))
	grouped.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	relabelled := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))
	relabelled.Labels = map[string]string{"x": "y"}
	unused := volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))
	unused.Spec.Volumes = append(slices.Clone(unused.Spec.Volumes), volumestest.EmptyDirVolume("b"))
	for _, c := range []struct {
		b    *v1.Pod
		want bool
	}{
		{a, true}, {volumestest.PodWith("u", volumestest.EmptyDirVolume("a")), true}, {relabelled, true}, {unused, true},
		{grouped, false}, {volumestest.PodWith("u"), false}, {volumestest.PodWith("u", volumestest.HostPathVolume("a", "/", "")), false}, {nil, false},
	} {
		if got := kinds.SameVolumes(a, c.b); got != c.want {
			t.Errorf("sameVolumes with %+v = %t", c.b, got)
		}
	}
}
