package images

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/messages"
)

// line is a queue under test; begun has the images of pulls in the order of their start.
type line struct {
	b        *machine
	begun    []string
	reported map[string]string // the latest report of the wait, by image
}

func newLine(limit, qps, burst int32) *line {
	return &line{b: newMachine(lanes.New(limit, qps, burst)), reported: map[string]string{}}
}

func (l *line) do(effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case startPull:
			l.begun = append(l.begun, e.name)
		case podMessage:
			if m, ok := e.msg.(messages.ImageAwaited); ok {
				l.reported[m.Image] = m.Reason.String()
			}
		}
	}
}

func (l *line) put(images ...string) {
	for _, image := range images {
		l.do(l.b.ask(t0, req(messages.PullImage{Key: key(image, 0), Image: image, Policy: v1.PullAlways})))
	}
}

func (l *line) end(images ...string) {
	for _, image := range images {
		l.do(l.b.pulledOutcome(t0, image, "", outcome{result: present, ref: "id"}))
	}
}

func (l *line) want(t *testing.T, images ...string) {
	t.Helper()
	if !slices.Equal(l.begun, images) {
		t.Fatalf("begun: %v, want %v", l.begun, images)
	}
	l.begun = nil
}

func TestRegistriesTakeTurns(t *testing.T) {
	l := newLine(1, 0, 0)
	l.put("s/1", "s/2", "s/3", "f/1", "f/2", "g/1")
	for range 5 {
		l.end(l.begun[len(l.begun)-1])
	}
	l.want(t, "s/1", "f/1", "g/1", "s/2", "f/2", "s/3")
}

// A registry with pulls that never end gets all slots but one if the node uses others, and otherwise all.
func TestASlowRegistryDoesNotStopTheOthers(t *testing.T) {
	l := newLine(3, 0, 0)
	l.put("s/1", "s/2", "s/3", "s/4", "s/5")
	l.want(t, "s/1", "s/2", "s/3")
	l.put("f/1", "f/2")
	l.end("s/1") // the slot goes to the registry without a pull
	l.want(t, "f/1")
	for i := range 10 {
		l.end(fmt.Sprintf("f/%d", i+1))
		l.put(fmt.Sprintf("f/%d", i+3))
	}
	if slices.ContainsFunc(l.begun, func(s string) bool { return strings.HasPrefix(s, "s/") }) || len(l.begun) < 10 {
		t.Errorf("begun: %v", l.begun)
	}
	// An hour after the latest need of the other registry, the first is the only one again.
	for name, im := range l.b.images {
		if strings.HasPrefix(name, "f/") {
			for k := range im.needs {
				l.do(l.b.forget(t0, k.UID))
			}
		}
	}
	for _, name := range l.begun {
		l.end(name)
	}
	l.begun = nil
	l.do(l.b.tick(t0.Add(lanes.Kept)))
	l.want(t)
	l.do(l.b.tick(t0.Add(lanes.Kept + time.Second)))
	l.want(t, "s/4")
}

// Two hundred pods of one namespace, with pulls that never end, delay a pod of another namespace by at most a minute. This holds
// for any registries, and for any number of such pods of other namespaces that come later.
func TestPulls_TenantWhoseImagesHang(t *testing.T) {
	for _, limit := range []int32{0, 1, 3} {
		for name, image := range map[string]string{"one registry": "s/%d", "many registries": "s%d/x"} {
			t.Run(fmt.Sprintf("%s, limit %d", name, limit), func(t *testing.T) {
				l := newLine(limit, 0, 0)
				put := func(now time.Time, namespace, image string) {
					m := messages.PullImage{Key: key(image, 0), Image: image, Policy: v1.PullAlways, Pod: &v1.Pod{}}
					m.Pod.Namespace = namespace
					l.do(l.b.ask(now, req(m)))
				}
				for i := range 200 {
					put(t0, "greedy", fmt.Sprintf(image, i))
				}
				now := t0
				for i := range 5 {
					l.begun = nil
					other := fmt.Sprintf("s/other-%d", i)
					put(now, "other", other)
					for end := now.Add(newcomerLimit); !slices.Contains(l.begun, other); l.do(l.b.tick(now)) {
						if now = l.b.due(); now.IsZero() || now.After(end) {
							t.Fatalf("the pull %d of the other namespace has not begun after a minute", i)
						}
					}
					l.do(l.b.pulledOutcome(now, other, "", outcome{result: present, ref: "id"}))
					now = now.Add(5 * time.Minute)
					l.do(l.b.tick(now))
				}
				// After two hours the namespace's other pods no longer wait for its own hung pulls.
				l.begun = nil
				put(t0.Add(slotLimit), "other", "s/last")
				l.do(l.b.tick(t0.Add(slotLimit)))
				l.do(l.b.pulledOutcome(t0.Add(slotLimit), "s/last", "", outcome{result: present, ref: "id"}))
				if len(l.begun) < 2 {
					t.Error("no other pull of the namespace began")
				}
			})
		}
	}
}

// Of two registries below their limits, the one with fewer pulls in progress goes first, even if it had the latest turn.
func TestTheRegistryWithFewerPullsGoesFirst(t *testing.T) {
	l := newLine(4, 0, 0)
	l.put("s/1", "s/2", "s/3", "f/1", "s/4", "f/2")
	l.want(t, "s/1", "s/2", "s/3", "f/1")
	l.end("s/1")
	l.want(t, "f/2")
	l.put("f/3")
	l.end("f/1")
	l.want(t, "f/3")
}

func TestNoBoundOfTheConfiguration(t *testing.T) {
	l := newLine(0, 0, 0)
	for i := range lanes.AtOnce {
		l.put(fmt.Sprintf("s/%d", i))
	}
	if len(l.begun) != lanes.EachOf {
		t.Errorf("%d pulls of one registry at once", len(l.begun))
	}
	l.put("f/1")
	if got := l.begun[len(l.begun)-1]; got != "f/1" {
		t.Errorf("%s began last", got)
	}
	if n := (Options{MaxParallel: 7}).Slots(); n != 14 {
		t.Errorf("%d slots", n)
	}
	if n := (Options{MaxParallel: 7, Serialize: true}).Slots(); n != 2 {
		t.Errorf("%d slots", n)
	}
}

// Pulls beyond the rate limit wait. The kubelet fails them with "pull QPS exceeded".
func TestPullsASecond(t *testing.T) {
	l := newLine(10, 2, 3)
	l.put("r/1", "r/2", "r/3", "r/4", "r/5")
	l.want(t, "r/1", "r/2", "r/3")
	for i, name := range []string{"r/4", "r/5"} {
		at := t0.Add(time.Duration(i+1) * time.Second / 2)
		if due := l.b.due(); !due.Equal(at) {
			t.Fatalf("due %s", due)
		}
		l.do(l.b.tick(at))
		l.want(t, name)
	}
	if due := l.b.due(); !due.IsZero() {
		t.Errorf("still due %s", due)
	}
	rested := newLine(10, 2, 3)
	rested.do(rested.b.tick(t0.Add(-time.Hour)))
	rested.put("r/1", "r/2", "r/3", "r/4")
	rested.want(t, "r/1", "r/2", "r/3") // an hour without pulls permits no more than the burst
	if none := newLine(10, 1, 0); len(none.b.out) != 0 {
		t.Error("something is done for nobody")
	} else if none.put("r/1"); len(none.begun) != 1 {
		t.Error("a burst of 0 lets nothing pass")
	}
}

func TestWhoWaitsHearsWhere(t *testing.T) {
	l := newLine(1, 0, 0)
	for i := range 14 {
		l.put(fmt.Sprintf("r/%d", i))
	}
	for image, want := range map[string]string{
		"r/0":  `Pulling: the image "r/0" is being pulled from the registry r`,
		"r/1":  `PullQueued: the image "r/1" is 1st in the queue of the registry r`,
		"r/3":  `PullQueued: the image "r/3" is 3rd in the queue of the registry r`,
		"r/11": `PullQueued: the image "r/11" is behind more than 10 others in the queue of the registry r`,
	} {
		if l.reported[image] != want {
			t.Errorf("told %q, want %q", l.reported[image], want)
		}
	}
	clear(l.reported)
	l.end("r/0")
	if l.reported["r/1"] != `Pulling: the image "r/1" is being pulled from the registry r` || !strings.Contains(l.reported["r/11"], " 10th ") {
		t.Errorf("told %q", l.reported)
	}
	if _, reported := l.reported["r/13"]; reported {
		t.Error("told what is no news")
	}
	clear(l.reported)
	l.put("r/5") // a repeated question: the report may have been lost
	if len(l.reported) != 1 || !strings.Contains(l.reported["r/5"], "4th") {
		t.Errorf("told %q", l.reported)
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

// Needs with other credentials have a pull and a back-off of their own. A need with changed credentials does not wait for the
// back-off of the old ones.
func TestKeysArePulledApart(t *testing.T) {
	b := newMachine(lanes.New(0, 0, 0))
	with := func(uid, id string) request {
		r := req(ask(uid, v1.PullAlways, 0))
		r.credentials.id = id
		return r
	}
	bad := outcome{result: failed, code: messages.ReasonErrImagePull, msg: "denied"}
	there := outcome{result: present, ref: "id"}
	for i, s := range []struct {
		got, want string
	}{
		{script(b.ask(t0, with("u", ""))), "pull img"},
		{script(b.ask(t0, with("v", "k"))), "pull img"},
		{script(b.ask(t0, with("w", "k"))), ""},
		{script(b.pulledOutcome(t0, "img", "", bad)), "u: ErrImagePull until +10s"},
		{script(b.pulledOutcome(t0, "img", "k", there)), "v: pulled id; w: pulled id"},
		{script(b.ask(t0, with("v", "x"))), "look img"}, // a repeated question: it was answered with a pull
		{script(b.forget(t0, "v")), ""},
		{script(b.refresh(t0, func(*v1.Pod, string) credentials { return credentials{} })), ""},
		{script(b.refresh(t0, func(*v1.Pod, string) credentials { return credentials{id: "k"} })), "pull img"},
		{script(b.pulledOutcome(t0, "img", "k", bad)), "u: ErrImagePull until +10s"},
		{script(b.ask(t0, with("u", "other"))), "pull img"},
		{script(b.pulledOutcome(t0, "img", "other", there)), "u: pulled id"},
	} {
		if s.got != s.want {
			t.Fatalf("step %d: %q, want %q", i+1, s.got, s.want)
		}
	}
}

func TestWordsOfTheBackOff(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	r := req(ask("u", v1.PullAlways, 0))
	r.credentials.note = "; no Secret"
	b.ask(t0, r)
	b.pulledOutcome(t0, "img", "", outcome{result: failed, code: messages.ReasonErrImagePull, msg: "denied"})
	var got string
	for _, e := range b.tick(t0.Add(5 * time.Second)) {
		if m, ok := e.(podMessage).msg.(messages.ImageFailed); ok {
			got = m.Reason.String()
		}
	}
	if want := `ImagePullBackOff: Back-off pulling image "img": ErrImagePull: could not pull the image "img": denied; no Secret`; got != want {
		t.Errorf("told %q", got)
	}
}
