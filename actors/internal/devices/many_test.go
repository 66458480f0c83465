package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/devices/devicestest"
	dialer "github.com/playlet-dev/playlet/actors/internal/plugin"
)

// A plugin that shares memory has one device per MiB, and a pod may request most of them. The choice is made with a lock for
// which mailboxes wait: a choice that compares each device with each other takes minutes for this many, and the test times out.
func TestPick_OfManyDevices(t *testing.T) {
	free := make([]string, 300_000)
	for i := range free {
		free[i] = fmt.Sprintf("GPU-8a55ae3a-%06d", i)
	}
	preferred := slices.Clone(free[1000:])
	slices.Reverse(preferred)
	got := need{first: free[:10], free: free[5:], rest: len(free) - 20}.pick(preferred)
	want := slices.Concat(free[:990], free[1000:])
	if !slices.Equal(got, want) {
		t.Errorf("chose %d devices, want %d: all but ten that are not preferred", len(got), len(want))
	}
}

// A plugin that registers without pause waits, or is refused. It does not delay plugins of other resources. There is a limit of
// resources.
func TestRegister_WithoutPause(t *testing.T) {
	r := newRig(t)
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	refused := 0
	for range 100 {
		if _, err := r.admit(soon, gpu); err != nil {
			refused++
		}
	}
	if refused < 70 {
		t.Errorf("refused %d of 100 registrations of one resource", refused)
	}
	for i := range maxResources - 1 {
		if _, err := r.admit(t.Context(), fmt.Sprintf("example.com/r%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.admit(t.Context(), "example.com/another"); err == nil || !strings.Contains(err.Error(), "the limit") {
		t.Errorf("one resource more than the limit: %v", err)
	}
}

// Names without a plugin make room for new ones once their pace is full. Names in use, with allocated devices, or that a plugin
// used a moment ago stay.
func TestRegister_ForgetsIdleResources(t *testing.T) {
	r := newRig(t)
	for i := range maxResources {
		if _, err := r.admit(t.Context(), fmt.Sprintf("example.com/r%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Hour)
	r.locked(func() {
		b := r.inventory
		b.resources["example.com/r0"] = &resourceState{plugin: &plugin{}}
		b.resources["example.com/r1"] = &resourceState{gone: later}
		b.resources["example.com/r2"] = &resourceState{gone: time.Now()}
		b.resources["example.com/r3"] = &resourceState{gone: time.Now()}
		b.given[holder{"uid", "c"}] = map[string]allocation{"example.com/r2": {}}
		r.paces["example.com/r4"].registrations.AllowN(later, 20)
		r.forgetIdle(later)
	})
	want := []string{"example.com/r0", "example.com/r1", "example.com/r2", "example.com/r4"}
	if got := slices.Sorted(maps.Keys(r.paces)); !slices.Equal(got, want) {
		t.Errorf("kept %d resources %.200v, want %v", len(got), got, want)
	}
	if r.inventory.resources["example.com/r3"] != nil {
		t.Error("a resource without a plugin is kept")
	}
	r.locked(func() { // as an hour later
		for i := range maxResources - len(want) {
			r.paces[fmt.Sprintf("example.com/s%d", i)] = &pace{registrations: dialer.Pace(), lists: dialer.Pace()}
		}
	})
	if _, err := r.admit(t.Context(), "example.com/another"); err != nil {
		t.Errorf("a new resource: %v", err)
	}
}

// A plugin that sends its list without pause has only some of them handled, and the log has only some lines. Its last list
// counts.
func TestLists_WithoutPause(t *testing.T) {
	began := time.Now()
	r := newRig(t)
	p := r.plugin("a", "b")
	r.begin(p)
	r.await(2, 2)
	for i := range 300 {
		p.Set("a", fmt.Sprintf("b%d", i))
		r.delivered(p)
	}
	p.Set("a", "!b")
	r.await(2, 1)
	most := 25 + int(time.Since(began)/(5*time.Second))
	if n := int(r.lists.Load()); n > most {
		t.Errorf("pods asked again after %d lists", n)
	}
	if n := strings.Count(r.log.String(), "reported its devices"); n > most {
		t.Errorf("%d lines of the log", n)
	}
}

// delivered waits until the plugin has sent its present list.
func (r *rig) delivered(p *devicestest.Plugin) {
	r.Helper()
	for end := time.Now().Add(waitLimit); !p.Sent(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.Fatal("the list is not sent")
		}
	}
}
