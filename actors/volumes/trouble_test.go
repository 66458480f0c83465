package volumes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Each volume has its own back-off: what failed often waits long, and does not hold up what has just failed; what is mounted
// is left alone.
func TestEachVolumeHasItsOwnBackOff(t *testing.T) {
	pod := podWith("u", emptyDirVolume("fine"), emptyDirVolume("often"), emptyDirVolume("once"))
	p, effects := podState{}.step("u", mountAsked{pod}, anyTime, 1)
	if only := effects[0].(beginMount).only; len(only) != 0 {
		t.Errorf("first %v are mounted", only)
	}
	p.troubles = map[string]trouble{"often": {fails: 3}}
	p, effects = p.step("u", mountEnded{1, mountOutcome{
		pod: pod, paths: map[string]string{"fine": "/fine"}, failures: []failure{{"often", "x", false}, {"once", "y", false}},
	}}, anyTime, 2)
	if got := words(effects); got != "VolumesFailed VolumesFailed noteFailures retryAfter(500ms)" {
		t.Fatal(got)
	}
	for i, want := range []struct {
		volume string
		after  time.Duration
	}{{"often", 4 * time.Second}, {"once", retryFirst}} {
		told := effects[i].(tell).msg.(messages.VolumesFailed)
		if told.Volume != want.volume || !told.Reason.RetryAt.Equal(anyTime.Add(want.after)) {
			t.Errorf("told %+v, want %+v", told, want)
		}
	}
	now := anyTime.Add(retryFirst)
	p, effects = p.step("u", retryDue{2}, now, 3)
	if only := effects[0].(beginMount).only; !slices.Equal(only, []string{"once"}) {
		t.Errorf("then %v are mounted", only)
	}
	p, effects = p.step("u", mountEnded{3, mountOutcome{pod: pod, only: []string{"once"}, paths: map[string]string{"once": "/once"}}}, now, 4)
	if got := words(effects); got != "VolumesFailed retryAfter(3.5s)" || p.phase != backingOff {
		t.Fatal(got)
	}
	now = anyTime.Add(4 * time.Second)
	p, effects = p.step("u", retryDue{4}, now, 5)
	if only := effects[0].(beginMount).only; !slices.Equal(only, []string{"often"}) {
		t.Errorf("last %v are mounted", only)
	}
	_, effects = p.step("u", mountEnded{5, mountOutcome{pod: pod, only: []string{"often"}, paths: map[string]string{"often": "/often"}}}, now, 6)
	want := map[string]string{"fine": "/fine", "often": "/often", "once": "/once"}
	if told, ok := effects[0].(tell).msg.(messages.VolumesMounted); !ok || fmt.Sprint(told.Paths) != fmt.Sprint(want) {
		t.Errorf("told %+v", effects[0])
	}
}

// What failed for good is tried no more, and told with the others; what holds objects is tried as soon as these change, and
// alone.
func TestWhatIsDue(t *testing.T) {
	config := v1.Volume{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}
	pod := podWith("u", config, emptyDirVolume("refused"), emptyDirVolume("later"), emptyDirVolume("mounted"))
	later := anyTime.Add(time.Minute)
	p := podState{
		phase: backingOff, turn: 1, pod: pod, opPod: pod, paths: map[string]string{"mounted": "/m"},
		troubles: map[string]trouble{
			"config": {failure{"config", "", false}, 1, later}, "later": {failure{"later", "", false}, 1, later}, "refused": {failure{"refused", "", true}, 1, time.Time{}},
		},
	}
	if due := p.due(anyTime); len(due) > 0 {
		t.Errorf("due are %v", due)
	}
	if due := p.due(later); !slices.Equal(due, []string{"config", "later"}) {
		t.Errorf("later due are %v", due)
	}
	p.version = 7
	p, effects := p.step("u", objectsChanged{}, anyTime, 2)
	if only := effects[0].(beginMount).only; !slices.Equal(only, []string{"config"}) {
		t.Errorf("after a change %v are mounted", only)
	}
	p, effects = p.step("u", mountEnded{2, mountOutcome{pod: pod, only: p.opOnly, paths: map[string]string{"config": "/c"}}}, anyTime, 3)
	if got := words(effects); got != "VolumesFailed VolumesFailed retryAfter(1m0s)" {
		t.Error(got)
	}
	p, _ = p.step("u", retryDue{3}, later, 4)
	p, effects = p.step("u", mountEnded{4, mountOutcome{pod: pod, only: p.opOnly, paths: map[string]string{"later": "/l"}}}, later, 5)
	if got := words(effects); got != "VolumesFailed" || p.phase != refused {
		t.Errorf("%s, %s", got, p.phase)
	}
}

// The folder's trouble is that of all its volumes.
func TestAFolderThatCannotBeMade(t *testing.T) {
	pod := podWith("u", emptyDirVolume("a"))
	p, _ := podState{}.step("u", mountAsked{pod}, anyTime, 1)
	p, effects := p.step("u", mountEnded{1, mountOutcome{pod: pod, failures: []failure{{"", "no disk", false}}}}, anyTime, 2)
	if got := words(effects); got != "VolumesFailed noteFailures retryAfter(500ms)" {
		t.Fatal(got)
	}
	p, effects = p.step("u", retryDue{2}, anyTime.Add(retryFirst), 3)
	if only := effects[0].(beginMount).only; !slices.Equal(only, []string{"a"}) {
		t.Errorf("%v are mounted", only)
	}
	_, effects = p.step("u", mountEnded{3, mountOutcome{pod: pod, only: p.opOnly, failures: []failure{{"", "no disk", false}}}}, anyTime, 4)
	if got := words(effects); got != "VolumesFailed noteFailures retryAfter(1s)" {
		t.Fatal(got)
	}
}
