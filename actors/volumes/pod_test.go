package volumes

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Short names for the table: what a step does is written as words.
func words(effects []any) string {
	var out []string
	for _, e := range effects {
		switch e := e.(type) {
		case tell:
			out = append(out, reflect.TypeOf(e.msg).Name())
		case beginUnmount:
			out = append(out, fmt.Sprintf("beginUnmount(%t)", e.remove))
		case noteLeft:
			out = append(out, "noteLeft"+e.left)
		case retryAfter:
			out = append(out, fmt.Sprintf("retryAfter(%s)", e.d))
		default:
			out = append(out, reflect.TypeOf(e).Name())
		}
	}
	return strings.Join(out, " ")
}

func TestStep(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one, other := podWith("u", emptyDirVolume("a")), podWith("u", emptyDirVolume("b"))
	again := podWith("u", emptyDirVolume("a")) // read again from its source
	const turn, fresh = 7, 8
	at := func(p phase) podState {
		why := trouble{failure{"a", "why", p == refused}, 3, now}
		return podState{phase: p, turn: turn, pod: one, opPod: one, troubles: map[string]trouble{"a": why}}
	}
	with := func(p podState, change func(*podState)) podState { change(&p); return p }
	changed := func(p *podState) { p.pod = other }
	removing := func(p *podState) { p.remove, p.opRemove, p.asked = true, true, true }
	fine := mountEnded{turn, mountOutcome{pod: one, paths: map[string]string{"a": "/a"}}}
	failed := mountEnded{turn, mountOutcome{pod: one, failures: []failure{{"a", "why", false}}}}
	hopeless := mountEnded{turn, mountOutcome{pod: one, failures: []failure{{"a", "no", true}}}}
	mixed := mountEnded{turn, mountOutcome{pod: one, failures: []failure{{"a", "why", false}, {"b", "no", true}}}}
	back, _ := at(mounting).onMountAsked("u", other, fresh) // and then as it was
	back, _ = back.onMountAsked("u", again, fresh)
	gone := unmountEnded{turn, unmountOutcome{}}
	stuck := unmountEnded{turn, unmountOutcome{left: "(why)"}}

	for _, c := range []struct {
		name string
		from podState
		ev   any
		to   phase
		want string
	}{
		{"asked", podState{}, mountAsked{one}, mounting, "beginMount"},
		{"nothing to undo is still looked at", podState{}, unmountAsked{true}, unmounting, "beginUnmount(true)"},
		{"an orphan", podState{}, leftBehind{}, unmounting, "beginUnmount(true)"},
		{"a result of an earlier life", podState{}, fine, absent, ""},

		{"asked twice", at(mounting), mountAsked{again}, mounting, ""},
		{"mounted", at(mounting), fine, mounted, "VolumesMounted"},
		{"failed", at(mounting), failed, backingOff, "VolumesFailed noteFailures retryAfter(4s)"},
		{"refused", at(mounting), hopeless, refused, "VolumesFailed noteFailures"},
		{"one refused, one failed", at(mounting), mixed, backingOff, "VolumesFailed VolumesFailed noteFailures retryAfter(4s)"},
		{"changed meanwhile", with(at(mounting), changed), fine, mounting, "beginMount"},
		{"changed meanwhile, and back", back, fine, mounting, "beginMount"},
		{"unmounting waits for mounting", at(mounting), unmountAsked{true}, abandoning, ""},
		{"mounting is no orphan", at(mounting), leftBehind{}, mounting, ""},
		{"a late timer", at(mounting), retryDue{turn}, mounting, ""},
		{"a stale result", at(mounting), mountEnded{turn - 1, mountOutcome{}}, mounting, ""},

		{"asked again", at(mounted), mountAsked{again}, verifying, "beginVerify"},
		{"asked for others", at(mounted), mountAsked{other}, mounting, "beginMount"},
		{"unwanted", at(mounted), unmountAsked{false}, unmounting, "beginUnmount(false)"},
		{"forgotten", at(mounted), leftBehind{}, unmounting, "beginUnmount(true)"},

		{"asked while verifying", at(verifying), mountAsked{again}, verifying, ""},
		{"verified", at(verifying), verifyEnded{turn, true}, mounted, "VolumesMounted"},
		{"not found", at(verifying), verifyEnded{turn, false}, mounting, "beginMount"},
		{"verified too late", at(verifying), verifyEnded{turn - 1, false}, verifying, ""},
		{"others while verifying", at(verifying), mountAsked{other}, mounting, "beginMount"},
		{"unwanted while verifying", at(verifying), unmountAsked{true}, unmounting, "beginUnmount(true)"},
		{"verified when it no longer matters", at(unmounting), verifyEnded{turn, true}, unmounting, ""},

		{"asked while backing off", at(backingOff), mountAsked{again}, backingOff, "VolumesFailed"},
		{"others while backing off", at(backingOff), mountAsked{other}, mounting, "beginMount"},
		{"retry", at(backingOff), retryDue{turn}, mounting, "beginMount"},
		{"a stale timer", at(backingOff), retryDue{turn - 1}, backingOff, ""},
		{"unwanted while backing off", at(backingOff), unmountAsked{true}, unmounting, "beginUnmount(true)"},

		{"asked what is refused", at(refused), mountAsked{again}, refused, "VolumesFailed"},
		{"changed after a refusal", at(refused), mountAsked{other}, mounting, "beginMount"},

		{"mounted when unwanted", at(abandoning), fine, unmounting, "beginUnmount(false)"},
		{"failed when unwanted", at(abandoning), failed, unmounting, "beginUnmount(false)"},
		{"wanted after all", at(abandoning), mountAsked{again}, mounting, ""},
		{"unwanted twice", at(abandoning), unmountAsked{true}, abandoning, ""},

		{"gone", with(at(unmounting), removing), gone, absent, "noteLeft VolumesUnmounted"},
		{"gone, and nobody asked", at(unmounting), gone, absent, "noteLeft"},
		{"not all is gone", with(at(unmounting), removing), stuck, absent, "noteLeft(why) VolumesUnmounted"},
		{"more is to go", with(at(unmounting), func(p *podState) { p.remove = true }), gone, unmounting, "beginUnmount(true)"},
		{"wanted while unmounting", at(unmounting), mountAsked{again}, remounting, ""},
		{"unwanted again", at(unmounting), unmountAsked{true}, unmounting, ""},

		{"mounted again", at(remounting), gone, mounting, "beginMount"},
		{"unwanted after all", at(remounting), unmountAsked{true}, unmounting, ""},
		{"asked while remounting", at(remounting), mountAsked{other}, remounting, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.from
			got, effects := c.from.step("u", c.ev, now, fresh)
			if got.phase != c.to || words(effects) != c.want {
				t.Errorf("got %q and %q, want %q and %q", got.phase, words(effects), c.to, c.want)
			}
			if !reflect.DeepEqual(before, c.from) {
				t.Error("the state was changed in place")
			}
			if strings.Contains(c.want, "begin") || strings.Contains(c.want, "retry") {
				if got.turn != fresh {
					t.Errorf("turn %d, want the fresh one", got.turn)
				}
			}
		})
	}
}

// Each message carries what it promises.
func TestWhatPodsAreTold(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p, _ := podState{}.step("u", mountAsked{podWith("u")}, now, 1)
	p, effects := p.step("u", mountEnded{1, mountOutcome{pod: p.pod, failures: []failure{{"data", "no room", false}}}}, now, 2)
	want := messages.VolumesFailed{UID: "u", Volume: "data", Reason: messages.Reason{
		Code: "FailedMount", Message: `volume "data": no room`, RetryAt: now.Add(500 * time.Millisecond),
	}}
	if effects[0] != (tell{want}) {
		t.Errorf("got %+v, want %+v", effects[0], want)
	}
	if _, again := p.step("u", mountAsked{podWith("u")}, now.Add(time.Millisecond), 3); len(again) != 1 || again[0] != (tell{want}) {
		t.Errorf("asked again: %+v", again)
	}
	p, _ = p.step("u", retryDue{2}, now, 4)
	_, effects = p.step("u", mountEnded{4, mountOutcome{pod: p.pod, failures: []failure{{"", "no disk", true}}}}, now, 5)
	reason := effects[0].(tell).msg.(messages.VolumesFailed).Reason
	if !reason.Permanent || reason.Message != "no disk" || !reason.RetryAt.IsZero() {
		t.Errorf("got %+v", reason)
	}
}

func TestBackOff(t *testing.T) {
	var got []string
	for n := range 11 {
		got = append(got, retryDelay(n).String())
	}
	want := "500ms 1s 2s 4s 8s 16s 32s 1m4s 2m2s 2m2s 2m2s"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

// What a pod asked before it wanted its volumes again counts no more.
func TestWantingAgainTakesTheUnmountBack(t *testing.T) {
	pod := podWith("u", emptyDirVolume("a"))
	p, _ := podState{}.step("u", mountAsked{pod}, time.Time{}, 1)
	p, _ = p.step("u", unmountAsked{true}, time.Time{}, 2)
	p, _ = p.step("u", mountAsked{pod}, time.Time{}, 3)
	p, effects := p.step("u", mountEnded{1, mountOutcome{pod: pod}}, time.Time{}, 4)
	if words(effects) != "VolumesMounted" {
		t.Errorf("got %s", words(effects))
	}
	_, effects = p.step("u", unmountAsked{false}, time.Time{}, 5)
	if words(effects) != "beginUnmount(false)" {
		t.Errorf("got %s", words(effects))
	}
	p, _ = p.step("u", leftBehind{}, time.Time{}, 6)
	if _, effects = p.step("u", unmountEnded{6, unmountOutcome{}}, time.Time{}, 7); words(effects) != "noteLeft" {
		t.Errorf("a pod that went without a word was told %s", words(effects))
	}
}

// A pod that asks for something else begins its back-off anew.
func TestBackOffIsOfOneWish(t *testing.T) {
	p := podState{phase: backingOff, pod: podWith("u", emptyDirVolume("a")), troubles: map[string]trouble{"a": {fails: 5}}}
	p, _ = p.step("u", mountAsked{podWith("u", emptyDirVolume("b"))}, time.Time{}, 1)
	if len(p.troubles) != 0 {
		t.Errorf("failures are remembered: %v", p.troubles)
	}
}

func TestAnEdgeOutsideTheTablePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	podState{phase: absent}.to(mounted)
}

// The diagram says the same in the comments of the phases, in the table, and here: every phase can be left.
func TestEdges(t *testing.T) {
	reached := map[phase]bool{}
	for from, tos := range edges {
		if len(tos) == 0 {
			t.Errorf("%q is never left", from)
		}
		for _, to := range tos {
			reached[to] = true
			if _, ok := edges[to]; !ok {
				t.Errorf("%q leads to %q, which is not in the table", from, to)
			}
		}
	}
	for p := range edges {
		if !reached[p] {
			t.Errorf("%q is never reached", p)
		}
	}
}

func TestSameWish(t *testing.T) {
	group := int64(1)
	a := podWith("u", emptyDirVolume("a"))
	grouped := podWith("u", emptyDirVolume("a"))
	grouped.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	relabelled := podWith("u", emptyDirVolume("a"))
	relabelled.Labels = map[string]string{"x": "y"}
	unused := podWith("u", emptyDirVolume("a"))
	unused.Spec.Volumes = append(slices.Clone(unused.Spec.Volumes), emptyDirVolume("b"))
	for _, c := range []struct {
		b    *v1.Pod
		want bool
	}{
		{a, true}, {podWith("u", emptyDirVolume("a")), true}, {relabelled, true}, {unused, true},
		{grouped, false}, {podWith("u"), false}, {podWith("u", hostPathVolume("a", "/", "")), false},
	} {
		if got := sameWish(a, c.b); got != c.want {
			t.Errorf("sameWish with %+v = %t", c.b.Spec, got)
		}
	}
}
