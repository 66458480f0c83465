package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/cri/stall"
	"github.com/playlet-dev/playlet/messages"
)

// gate is a plugin with mounts that block until the test releases them.
type gate struct {
	kinds.HostPath
	entered, leave chan struct{}
	panics         bool
}

func (g gate) Mount(context.Context, kinds.Folder, *v1.Volume) (string, error) {
	if g.panics {
		panic("oh")
	}
	g.entered <- struct{}{}
	<-g.leave
	return "/gate", nil
}

// An operation continues when its caller stops waiting. Before anything is removed, operations in progress on a volume are
// awaited.
func TestOperationsOutliveWhoAskedForThem(t *testing.T) {
	g := gate{entered: make(chan struct{}), leave: make(chan struct{})}
	d := newDisk(t, g)
	pod := volumestest.PodWith("u", volumestest.HostPathVolume("v", "/x", v1.HostPathUnset))
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan mountOutcome)
	go func() { first <- d.mountPod(ctx, "u", pod) }()
	<-g.entered
	cancel()
	if out := <-first; len(out.failures()) != 1 || out.failures()[0].permanent {
		t.Errorf("the first got %+v", out)
	}
	write(t, d.pod("u/file"))
	unmounted := make(chan error)
	go func() { unmounted <- d.unmountPod(t.Context(), "u", true) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.unmountPod(ended, "u", true); err == nil || !exists(t, d.pod("u/file")) {
		t.Error("a mount under way was not awaited")
	}
	close(g.leave)
	if err := <-unmounted; err != nil || exists(t, d.pod("u")) {
		t.Errorf("left %v", err)
	}
}

// An operation of an earlier life of the actor is joined if it does all the requested work, and no more.
func TestWhatIsJoined(t *testing.T) {
	one, other := volumestest.PodWith("u", volumestest.EmptyDirVolume("a")), volumestest.PodWith("u", volumestest.EmptyDirVolume("b"))
	known := state{volumes: map[string]volumeState{}}
	mount := operation{Desired: one}
	for _, c := range []struct {
		underWay, mine operation
		want           bool
	}{
		{mount, mount, true}, {mount, operation{Desired: volumestest.PodWith("u", volumestest.EmptyDirVolume("a"))}, true},
		{operation{}, operation{}, true}, {operation{Remove: true}, operation{Remove: true}, true},
		{operation{Desired: other}, mount, false}, {operation{}, mount, false}, {operation{}, operation{Remove: true}, false},
		{operation{Remove: true}, mount, false}, {operation{Remove: true}, operation{}, false},
		{operation{Desired: one, Actual: known}, mount, false}, {mount, operation{Desired: one, Actual: known}, false},
	} {
		if got := joins(c.underWay, c.mine); got != c.want {
			t.Errorf("%+v joins %+v: %t", c.mine, c.underWay, got)
		}
	}
}

func TestPluginPanic_FailsItsPod(t *testing.T) {
	d := newDisk(t, gate{panics: true})
	out := d.mountPod(t.Context(), "u", volumestest.PodWith("u", volumestest.HostPathVolume("v", "/x", v1.HostPathUnset)))
	if len(out.failures()) != 1 || !strings.Contains(out.failures()[0].message, "bug") {
		t.Errorf("got %+v", out)
	}
}

// hangingPlugin is a kind of volume that hangs if its path is /hangs.
type hangingPlugin struct{ gate }

func (h hangingPlugin) Mount(ctx context.Context, p kinds.Folder, v *v1.Volume) (string, error) {
	if v.HostPath.Path == "/hangs" {
		return h.gate.Mount(ctx, p, v)
	}
	return h.HostPath.Mount(ctx, p, v)
}

// A volume that hangs does not delay the others: they are mounted, and the error names the hung one. Nothing is removed below
// it. A later mount joins it, and succeeds when it ends.
func TestAVolumeThatHangsIsAlone(t *testing.T) {
	h := hangingPlugin{gate{entered: make(chan struct{}, 9), leave: make(chan struct{})}}
	d := newDisk(t, append([]kinds.Plugin{h}, kinds.All()...)...)
	d.timeouts = timeouts{time.Millisecond, time.Millisecond}
	volumes := []v1.Volume{volumestest.HostPathVolume("hung", "/hangs", "")}
	for i := range volumesAtATime {
		volumes = append(volumes, volumestest.EmptyDirVolume(fmt.Sprint("v", i)))
	}
	pod := volumestest.PodWith("u", volumes...)
	out := d.mountPod(t.Context(), "u", pod)
	for len(h.entered) == 0 { // the timeout can end before the mount has begun
		out = d.mountPod(t.Context(), "u", pod)
	}
	if i := slices.IndexFunc(out.failures(), func(f failure) bool {
		return f.volume == "hung" &&
			strings.Contains(f.message, "still being mounted")
	}); i < 0 {
		t.Errorf("got %+v", out)
	}
	d.timeouts.volume = time.Hour
	var others []string
	for _, v := range volumes[1:] {
		others = append(others, v.Name)
	}
	if out := d.mountPod(t.Context(), "u", pod, others...); len(out.failures()) > 0 || len(out.paths()) != len(others) {
		t.Errorf("the others: %+v", out)
	}
	err := d.unmountPod(t.Context(), "u", true)
	if err == nil || !strings.Contains(err.Error(), "volumes/u/hung") ||
		!exists(t, d.pod("u/volumes/kubernetes.io~empty-dir/v0")) {
		t.Errorf("left %v", err)
	}
	again := make(chan mountOutcome)
	go func() { again <- d.mountPod(t.Context(), "u", pod) }()
	close(h.leave)
	if out := <-again; len(out.failures()) > 0 || out.paths()["hung"] != "/gate" || len(out.paths()) != len(volumes) {
		t.Errorf("in the end: %+v", out)
	}
	if err := d.unmountPod(t.Context(), "u", true); err != nil || exists(t, d.pod("u")) {
		t.Errorf("left %v", err)
	}
}

// hangingClaim is a kind of persistent volume that hangs.
type hangingClaim struct{ gate }

func (hangingClaim) Handles(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil }

// Volumes that hang in their drivers or file systems take no place from the pod's other volumes.
func TestMountPod_HungVolumesTakeNoPlace(t *testing.T) {
	h := hangingClaim{gate{entered: make(chan struct{}, 99), leave: make(chan struct{})}}
	d := newDisk(t, append([]kinds.Plugin{h}, kinds.All()...)...)
	d.timeouts.volume = time.Hour
	var volumes []v1.Volume
	for i := range 2 * volumesAtATime {
		volumes = append(volumes, v1.Volume{Name: fmt.Sprint("claim", i), VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}})
	}
	pod := volumestest.PodWith("u", append(volumes, volumestest.EmptyDirVolume("own"))...)
	done := make(chan mountOutcome, 1)
	go func() { done <- d.mountPod(t.Context(), "u", pod) }()
	end := time.Now().Add(time.Minute) // only a hang reaches it
	for !exists(t, d.pod("u/volumes/kubernetes.io~empty-dir/own")) && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	if !exists(t, d.pod("u/volumes/kubernetes.io~empty-dir/own")) {
		t.Error("the emptyDir waits for the claims")
	}
	close(h.leave)
	if out := <-done; len(out.failures()) > 0 {
		t.Errorf("got %+v", out)
	}
}

// The volumes of one pod are mounted concurrently.
func TestVolumesAreMountedSideBySide(t *testing.T) {
	g := gate{entered: make(chan struct{}), leave: make(chan struct{})}
	d := newDisk(t, g)
	done := make(chan mountOutcome, 1)
	go func() {
		done <- d.mountPod(t.Context(), "u", volumestest.PodWith("u", volumestest.HostPathVolume("a", "/x", ""), volumestest.HostPathVolume("b", "/x", "")))
	}()
	for range 2 {
		select {
		case <-g.entered:
		case <-time.After(5 * time.Minute): // only a hang reaches it
			t.Error("one waits for the other")
		}
	}
	close(g.leave)
	if out := <-done; len(out.failures()) > 0 || len(out.paths()) != 2 {
		t.Errorf("got %+v", out)
	}
}

// slow is a plugin with a mount that reports a change of group and then blocks.
type slow struct {
	kinds.HostPath
	leave chan struct{}
}

func (s slow) Mount(ctx context.Context, _ kinds.Folder, _ *v1.Volume) (string, error) {
	stall.Progress(ctx, &kinds.GroupChange{Folder: "u/volumes/kind/v"})
	<-s.leave
	return "/slow", nil
}

func TestMountPod_ReportsTheChangeOfOwners(t *testing.T) {
	s := slow{leave: make(chan struct{})}
	d := newDisk(t, s)
	d.timeouts.volume = 100 * time.Millisecond
	pod := volumestest.PodWith("u", volumestest.HostPathVolume("v", "/x", v1.HostPathUnset))
	now := time.Now()
	is := state{}.after(d.mountPod(t.Context(), "u", pod), now)
	got := is.failed("u")
	if len(got) != 1 || got[0].Reason.Code != messages.ReasonPermissionChange || got[0].Quiet || got[0].Reason.Permanent ||
		got[0].Reason.Cause.Text != "Setting volume ownership for u/volumes/kind/v, processed 0 files" {
		t.Errorf("got %+v", got)
	}
	if again := is.next(); again.After(now.Add(waitRetry.Max)) {
		t.Errorf("it is looked at again after %s, want at most %s", again.Sub(now), waitRetry.Max)
	}
	close(s.leave)
	must(t, d.settle(t.Context(), "u"))
	if out := d.mountPod(t.Context(), "u", pod); len(out.failures()) > 0 {
		t.Errorf("after its end: %v", out.failures())
	}
}
