package volumes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// gate is a plugin whose mount waits to be let through.
type gate struct {
	hostPath
	entered, leave chan struct{}
	panics         bool
}

func (g gate) mount(context.Context, podFolder, *v1.Volume) (string, error) {
	if g.panics {
		panic("oh")
	}
	g.entered <- struct{}{}
	<-g.leave
	return "/gate", nil
}

// Who stops waiting leaves the work running; who comes next joins it, and an operation of another kind waits for it.
func TestOperationsOutliveWhoAskedForThem(t *testing.T) {
	g := gate{entered: make(chan struct{}), leave: make(chan struct{})}
	d := newDisk(t, g)
	pod := podWith("u", hostPathVolume("v", "/x", v1.HostPathUnset))
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan mountOutcome)
	go func() { first <- d.mountPod(ctx, "u", pod) }()
	<-g.entered
	cancel()
	if out := <-first; len(out.failures) != 1 || out.failures[0].permanent {
		t.Errorf("the first got %+v", out)
	}
	write(t, d.pod("u/file"))
	unmounted := make(chan unmountOutcome)
	go func() { unmounted <- d.unmountPod(t.Context(), "u", true) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if out := d.unmountPod(ended, "u", true); out.left == "" || !exists(t, d.pod("u/file")) {
		t.Error("a mount under way was not awaited")
	}
	close(g.leave)
	if out := <-unmounted; out.left != "" || exists(t, d.pod("u")) {
		t.Errorf("left %q", out.left)
	}
}

// What is under way is joined only when it does what is asked for now; otherwise it is awaited.
func TestAnOperationForAnotherWishIsAwaited(t *testing.T) {
	other := podWith("u", emptyDirVolume("other"))
	for _, underWay := range []any{
		mountOutcome{pod: other, paths: map[string]string{"other": "/other"}},
		unmountOutcome{remove: false},
		unmountOutcome{remove: true},
	} {
		d := newDisk(t)
		d.ops = &joining{d.ops, underWay}
		out := d.mountPod(t.Context(), "u", podWith("u", emptyDirVolume("data")))
		if len(out.failures) > 0 || out.paths["data"] == "" || !exists(t, out.paths["data"]) {
			t.Errorf("after joining %+v: got %+v", underWay, out)
		}
		d.ops = &joining{d.ops, underWay}
		gone := d.unmountPod(t.Context(), "u", true)
		if joined := reflect.DeepEqual(underWay, unmountOutcome{remove: true}); exists(t, d.pod("u")) != joined || gone.left != "" {
			t.Errorf("after joining %+v: left %q, joined %t", underWay, gone.left, joined)
		}
	}
}

// joining is a table in which an operation with this result is under way for the first who asks.
type joining struct {
	Operations
	underWay any
}

func (j *joining) Do(ctx context.Context, key string, timeout time.Duration, fn func(context.Context) (any, error)) (any, error) {
	if result := j.underWay; result != nil {
		j.underWay = nil
		return result, nil
	}
	return j.Operations.Do(ctx, key, timeout, fn)
}

func TestAPanicOfAPluginIsAFailureOfItsPod(t *testing.T) {
	d := newDisk(t, gate{panics: true})
	out := d.mountPod(t.Context(), "u", podWith("u", hostPathVolume("v", "/x", v1.HostPathUnset)))
	if len(out.failures) != 1 || !strings.Contains(out.failures[0].message, "bug") {
		t.Errorf("got %+v", out)
	}
}

func TestLookEndsWithItsContext(t *testing.T) {
	d := newDisk(t)
	block := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	began := make(chan struct{})
	go func() {
		_, err := look(ctx, d, "x", func() (bool, error) { close(began); <-block; return true, nil })
		done <- err
	}()
	<-began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(block)
}

// hanging is a kind of volume that hangs where its path says so.
type hanging struct{ gate }

func (h hanging) mount(ctx context.Context, p podFolder, v *v1.Volume) (string, error) {
	if v.HostPath.Path == "/hangs" {
		return h.gate.mount(ctx, p, v)
	}
	return h.hostPath.mount(ctx, p, v)
}

// A volume that hangs keeps none of the others: they are mounted, and the one is named. Nothing is removed under it; it is
// joined, and when it ends all is well.
func TestAVolumeThatHangsIsAlone(t *testing.T) {
	h := hanging{gate{entered: make(chan struct{}, 9), leave: make(chan struct{})}}
	d := newDisk(t, emptyDir{}, h)
	d.patience = patience{time.Millisecond, time.Millisecond}
	volumes := []v1.Volume{hostPathVolume("hung", "/hangs", "")}
	for i := range volumesAtATime {
		volumes = append(volumes, emptyDirVolume(fmt.Sprint("v", i)))
	}
	pod := podWith("u", volumes...)
	out := d.mountPod(t.Context(), "u", pod)
	for len(h.entered) == 0 { // patience can end before the mount has begun
		out = d.mountPod(t.Context(), "u", pod)
	}
	if i := slices.IndexFunc(out.failures, func(f failure) bool { return f.volume == "hung" && strings.Contains(f.message, "still being mounted") }); i < 0 {
		t.Errorf("got %+v", out)
	}
	d.patience.volume = time.Hour
	var others []string
	for _, v := range volumes[1:] {
		others = append(others, v.Name)
	}
	if out := d.mountPod(t.Context(), "u", pod, others...); len(out.failures) > 0 || len(out.paths) != len(others) {
		t.Errorf("the others: %+v", out)
	}
	if out := d.unmountPod(t.Context(), "u", true); !strings.Contains(out.left, "volumes/u/hung") || !exists(t, d.pod("u/volumes/kubernetes.io~empty-dir/v0")) {
		t.Errorf("left %q", out.left)
	}
	again := make(chan mountOutcome)
	go func() { again <- d.mountPod(t.Context(), "u", pod) }()
	close(h.leave)
	if out := <-again; len(out.failures) > 0 || out.paths["hung"] != "/gate" || len(out.paths) != len(volumes) {
		t.Errorf("in the end: %+v", out)
	}
	if out := d.unmountPod(t.Context(), "u", true); out.left != "" || exists(t, d.pod("u")) {
		t.Errorf("left %q", out.left)
	}
}

// The volumes of one pod are mounted side by side.
func TestVolumesAreMountedSideBySide(t *testing.T) {
	g := gate{entered: make(chan struct{}), leave: make(chan struct{})}
	d := newDisk(t, g)
	done := make(chan mountOutcome, 1)
	go func() {
		done <- d.mountPod(t.Context(), "u", podWith("u", hostPathVolume("a", "/x", ""), hostPathVolume("b", "/x", "")))
	}()
	for range 2 {
		select {
		case <-g.entered:
		case <-time.After(time.Minute): // only a hang reaches it
			t.Error("one waits for the other")
		}
	}
	close(g.leave)
	if out := <-done; len(out.failures) > 0 || len(out.paths) != 2 {
		t.Errorf("got %+v", out)
	}
}
