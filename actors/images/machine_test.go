package images

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/messages"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func key(uid string, attempt uint32) messages.ImageKey {
	return messages.ImageKey{UID: uid, Container: "c", Attempt: attempt}
}

func ask(uid string, policy v1.PullPolicy, priority int64) messages.PullImage {
	return messages.PullImage{Key: key(uid, 0), Image: "img", Policy: policy, Priority: priority}
}

// req returns the machine's request for m. The registry is the first element of the name, or "r" if it has only one.
func req(m messages.PullImage) request {
	registry, _, found := strings.Cut(m.Image, "/")
	if !found {
		registry = "r"
	}
	return request{PullImage: m, name: m.Image, registry: registry}
}

// script formats effects as "look img", "pull img", "u: pulled id", "u: there id" or "u: Code".
func script(effects []effect) string {
	var out []string
	for _, e := range effects {
		switch e := e.(type) {
		case startLook:
			out = append(out, "look "+e.name)
		case startPull:
			out = append(out, "pull "+e.name)
		case podMessage:
			switch m := e.msg.(type) {
			case messages.ImagePulled:
				verb := "there"
				if m.Pulled {
					verb = "pulled"
				}
				out = append(out, fmt.Sprintf("%s: %s %s", e.uid, verb, m.Ref))
			case messages.ImageFailed:
				line := e.uid + ": " + m.Reason.Code
				if !m.Reason.RetryAt.IsZero() {
					line += fmt.Sprintf(" until +%s", m.Reason.RetryAt.Sub(t0))
				}
				out = append(out, line)
			}
		}
	}
	return strings.Join(out, "; ")
}

// step is one input of the machine and the expected effects.
type step struct {
	does func(b *machine) []effect
	want string
}

func asks(m messages.PullImage, want string) step {
	return step{func(b *machine) []effect { return b.ask(t0, req(m)) }, want}
}

func looksAt(at time.Duration, o outcome, want string) step {
	return step{func(b *machine) []effect { return b.handleLook(t0.Add(at), "img", o) }, want}
}

func pullEnds(at time.Duration, o outcome, want string) step {
	return step{func(b *machine) []effect { return b.pulledOutcome(t0.Add(at), "img", "", o) }, want}
}

func ticks(at time.Duration, want string) step {
	return step{func(b *machine) []effect {
		if d := b.due(); d.IsZero() || d.After(t0.Add(at)) {
			panic(fmt.Sprintf("nothing is due at +%s", at))
		}
		return b.tick(t0.Add(at))
	}, want}
}

func forgets(uid, want string) step {
	return step{func(b *machine) []effect { return b.forget(t0, uid) }, want}
}

func TestTheMachine(t *testing.T) {
	const always, ifNot, never = v1.PullAlways, v1.PullIfNotPresent, v1.PullNever
	there := outcome{result: present, ref: "id"}
	none := outcome{result: absent}
	bad := outcome{result: failed, code: "ErrImagePull", msg: "no such manifest"}
	gone := outcome{result: unreachable, code: "RuntimeUnavailable", msg: "refused"}
	second := func(m messages.PullImage) messages.PullImage { m.Key.Attempt = 1; return m }

	tests := map[string][]step{
		"a present image costs one look": {
			asks(ask("u", ifNot, 0), "look img"),
			looksAt(0, there, "u: there id"),
		},
		"many share one look and one pull": {
			asks(ask("u", ifNot, 0), "look img"),
			asks(ask("v", ifNot, 1), ""),
			looksAt(0, none, "pull img"),
			asks(ask("w", ifNot, 2), "look img"),
			looksAt(0, none, ""),
			asks(ask("x", always, 3), ""),
			pullEnds(0, there, "u: pulled id; v: pulled id; w: pulled id; x: pulled id"),
		},
		"a look that may have been before the end of a pull is not believed when it found nothing": {
			asks(ask("u", ifNot, 0), "look img"),
			looksAt(0, none, "pull img"),
			asks(ask("v", ifNot, 1), "look img"),
			pullEnds(0, there, "u: pulled id"),
			asks(ask("w", ifNot, 2), ""),
			looksAt(0, none, "look img"),
			looksAt(0, there, "v: there id; w: there id"),
		},
		"a look that was begun after the end of a pull is believed": {
			asks(ask("u", ifNot, 0), "look img"),
			looksAt(0, none, "pull img"),
			asks(ask("v", ifNot, 1), "look img"),
			pullEnds(0, there, "u: pulled id"),
			looksAt(0, none, "look img"),
			looksAt(0, none, "pull img"),
		},
		"Always pulls without a look": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, there, "u: pulled id"),
		},
		"IfNotPresent is not held up by the pull of another": {
			asks(ask("u", always, 0), "pull img"),
			asks(ask("v", ifNot, 0), "look img"),
			looksAt(0, there, "v: there id"),
			pullEnds(0, there, "u: pulled id"),
		},
		"Never does not pull, and looks again": {
			asks(ask("u", never, 0), "look img"),
			looksAt(0, none, "u: ErrImageNeverPull until +10s"),
			ticks(10*time.Second, "look img"),
			looksAt(10*time.Second, none, "u: ErrImageNeverPull until +30s"),
			ticks(30*time.Second, "look img"),
			looksAt(30*time.Second, there, "u: there id"),
		},
		"Never gains by the pull of another": {
			asks(ask("u", never, 0), "look img"),
			looksAt(0, none, "u: ErrImageNeverPull until +10s"),
			asks(ask("v", always, 0), "pull img"),
			pullEnds(time.Second, there, "v: pulled id; look img"),
			looksAt(time.Second, there, "u: there id"),
		},
		"a failed pull backs off, doubling": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, bad, "u: ErrImagePull until +10s"),
			ticks(5*time.Second, "u: ImagePullBackOff until +10s"),
			asks(ask("v", always, 0), "v: ImagePullBackOff until +10s"),
			asks(ask("u", always, 0), "u: ImagePullBackOff until +10s"),
			ticks(10*time.Second, "pull img"),
			pullEnds(10*time.Second, bad, "u: ErrImagePull until +30s; v: ErrImagePull until +30s"),
			ticks(20*time.Second, "u: ImagePullBackOff until +30s; v: ImagePullBackOff until +30s"),
			ticks(30*time.Second, "pull img"),
			pullEnds(30*time.Second, there, "u: pulled id; v: pulled id"),
		},
		"an image that was brought by hand ends the back-off": {
			asks(ask("u", ifNot, 0), "look img"),
			looksAt(0, none, "pull img"),
			pullEnds(0, bad, "u: ErrImagePull until +10s"),
			ticks(10*time.Second, "look img"),
			looksAt(10*time.Second, there, "u: there id"),
		},
		"and helps at once when somebody else looks": {
			asks(ask("u", ifNot, 0), "look img"),
			looksAt(0, none, "pull img"),
			pullEnds(0, bad, "u: ErrImagePull until +10s"),
			asks(ask("v", ifNot, 0), "look img"),
			looksAt(time.Second, there, "v: there id; u: there id"),
		},
		"a runtime that is away does not count": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, gone, "u: RuntimeUnavailable until +500ms"),
			ticks(500*time.Millisecond, "pull img"),
			pullEnds(500*time.Millisecond, gone, ""),
			asks(ask("v", always, 0), "v: RuntimeUnavailable until +1s"),
			ticks(time.Second, "pull img"),
			pullEnds(time.Second, bad, "u: ErrImagePull until +11s; v: ErrImagePull until +11s"),
		},
		"a look that fails is told and done again": {
			asks(ask("u", ifNot, 0), "look img"),
			looksAt(0, outcome{result: failed, code: "ImageInspectError", msg: "x"}, "u: ImageInspectError until +10s"),
			ticks(10*time.Second, "look img"),
			looksAt(10*time.Second, there, "u: there id"),
		},
		"asking again while it waits for a look looks at once": {
			asks(ask("u", never, 0), "look img"),
			looksAt(0, none, "u: ErrImageNeverPull until +10s"),
			asks(ask("u", never, 0), "look img"),
			asks(ask("u", never, 0), ""),
			looksAt(0, there, "u: there id"),
		},
		"asking again while it is under way changes nothing": {
			asks(ask("u", always, 0), "pull img"),
			asks(ask("u", always, 0), ""),
			pullEnds(0, there, "u: pulled id"),
		},
		"an answer that was lost is not worth another pull": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, there, "u: pulled id"),
			asks(ask("u", always, 0), "look img"),
			looksAt(0, there, "u: pulled id"),
		},
		"unless the image is gone since": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, there, "u: pulled id"),
			asks(ask("u", always, 0), "look img"),
			looksAt(0, none, "pull img"),
			pullEnds(0, bad, "u: ErrImagePull until +10s"),
			ticks(10*time.Second, "pull img"),
		},
		"the next attempt is another question": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, there, "u: pulled id"),
			asks(second(ask("u", always, 0)), "pull img"),
			asks(ask("u", always, 0), ""), // a late copy of the first one
			pullEnds(0, there, "u: pulled id"),
		},
		"the next attempt takes the place of the one before": {
			asks(ask("u", ifNot, 0), "look img"),
			asks(second(ask("u", ifNot, 0)), ""),
			looksAt(0, there, "u: there id"),
		},
		"what is forgotten is not told": {
			asks(ask("u", always, 0), "pull img"),
			asks(ask("v", always, 0), ""),
			forgets("u", ""),
			pullEnds(0, there, "v: pulled id"),
		},
		"what all forgot is not tried again": {
			asks(ask("u", always, 0), "pull img"),
			pullEnds(0, bad, "u: ErrImagePull until +10s"),
			forgets("u", ""),
			asks(ask("v", always, 0), "pull img"),
		},
		"a pull that was joined and is over is done again": {
			step{func(b *machine) []effect { b.adopt(t0, "img", "r", ""); return nil }, ""},
			asks(ask("u", always, 0), ""),
			pullEnds(0, none, "pull img"),
			pullEnds(0, there, "u: pulled id"),
		},
		"outcomes that nobody waits for change nothing": {
			pullEnds(0, there, ""),
			looksAt(0, there, ""),
			asks(ask("u", ifNot, 0), "look img"),
			pullEnds(0, there, ""),
			looksAt(0, there, "u: there id"),
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			b := newMachine(lanes.New(0, 0, 0))
			for i, s := range steps {
				if got := script(s.does(b)); got != s.want {
					t.Fatalf("step %d: got %q, want %q", i+1, got, s.want)
				}
			}
		})
	}
}

// The delays are the kubelet's.
func TestBackOff(t *testing.T) {
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		if got := pullRetry.After(i+1, 0); got != want*time.Second {
			t.Errorf("after %d failures: %s", i+1, got)
		}
	}
}

func TestQueue(t *testing.T) {
	b := newMachine(lanes.New(2, 0, 0))
	var order []string
	collect := func(effects []effect) {
		for _, e := range effects {
			if p, ok := e.(startPull); ok {
				order = append(order, p.name)
			}
		}
	}
	put := func(image string, priority int64) {
		m := ask("pod-of-"+image, v1.PullAlways, priority)
		m.Image = image
		collect(b.ask(t0, req(m)))
	}
	put("a", 50)
	put("b", 60)
	put("late", 90)
	put("urgent", 10)
	put("late-too", 90)
	put("dropped", 5)
	collect(b.forget(t0, "pod-of-dropped"))
	done := 0
	for done < len(order) {
		name := order[done]
		done++
		collect(b.pulledOutcome(t0, name, "", outcome{result: present, ref: "id"}))
	}
	if want := []string{"a", "b", "urgent", "late", "late-too"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if running, _ := b.queue.Running(); running != 0 || len(b.images) != 0 {
		t.Errorf("left behind: %d running, %d images", running, len(b.images))
	}
}

// A pull without needs is cut off after a minute, even if a predecessor began it. A pull that is needed again is not.
func TestPulls_NoNeedCutsOff(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	b.adopt(t0, "img", "r", "")
	b.flush(t0)
	asks(ask("u", v1.PullAlways, 0), "").does(b)
	if due := b.due(); !due.IsZero() {
		t.Errorf("something is due at %s of a pull that is needed", due)
	}
	b.forget(t0, "u")
	other := ask("v", v1.PullAlways, 0)
	other.Image = "other"
	b.ask(t0, req(other))
	now := t0.Add(unneededLimit)
	if due := b.due(); !due.Equal(now) {
		t.Fatalf("due at %s, want %s", due, now)
	}
	if got := b.tick(now); !slices.Equal(got, []effect{endPull{"img", ""}}) {
		t.Fatalf("got %+v, want the end of the pull", got)
	}
	late := ask("late", v1.PullAlways, 1)
	b.ask(now, req(late))
	got := script(b.pulledOutcome(now, "img", "", outcome{result: failed, code: "cancelled"}))
	if want := "pull other"; got != want {
		t.Errorf("got %s, want %s, and no failure of the pod that came meanwhile", got, want)
	}
	if got := script(b.pulledOutcome(now, "other", "", outcome{result: present, ref: "id"})); got != "v: pulled id; pull img" {
		t.Errorf("got %s", got)
	}
}

// A pull that takes hours gives its slot away and continues. At most as many pulls as there are slots do so.
func TestPulls_HoursLendTheSlot(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	put := func(now time.Time, image string) string {
		m := ask("pod-of-"+image, v1.PullAlways, 0)
		m.Image = image
		return script(b.ask(now, req(m)))
	}
	put(t0, "slow")
	put(t0, "second")
	now := t0.Add(slotLimit)
	if due := b.due(); !due.Equal(now) {
		t.Fatalf("due at %s, want %s", due, now)
	}
	if got := script(b.tick(now)); got != "pull second" {
		t.Fatalf("got %q", got)
	}
	put(now, "third")
	if now = now.Add(slotLimit); !b.due().IsZero() {
		t.Error("something is due when all slots are lent")
	}
	if got := script(b.tick(now)); got != "" {
		t.Errorf("got %q beyond twice the slots", got)
	}
	if got := script(b.pulledOutcome(now, "slow", "", outcome{result: present, ref: "id"})); got != "pod-of-slow: pulled id; pull third" {
		t.Errorf("got %q", got)
	}
}

func TestAdoptedPullsTakeSlots(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	b.adopt(t0, "img", "r", "")
	m := ask("u", v1.PullAlways, 0)
	m.Image = "other"
	if got := script(b.ask(t0, req(m))); got != "" {
		t.Fatalf("begun beside the one adopted: %s", got)
	}
	if got := script(b.pulledOutcome(t0, "img", "", outcome{result: present, ref: "id"})); got != "pull other" {
		t.Fatal(got)
	}
}

func TestAnswersAreLetGo(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	for i := range 100 {
		b.ask(t0, req(ask(fmt.Sprint(i), v1.PullAlways, 0)))
		b.pulledOutcome(t0.Add(time.Duration(i)*time.Minute), "img", "", outcome{result: present, ref: "id"})
	}
	if len(b.answers) > 25 {
		t.Errorf("%d answers are kept", len(b.answers))
	}
}

// The permission to use a present image is checked for each need. A refused need gets a pull of its own, or the reason if it
// must not pull. It does not block the others.
func TestTheMachineVerifiesCredentials(t *testing.T) {
	m := newMachine(lanes.New(1, 0, 0))
	m.policy = pullrecord.Policy{Kind: kubeletconfig.NeverVerifyPreloadedImages}
	now := time.Now()
	ask := func(uid string, policy v1.PullPolicy) []effect {
		return m.ask(now, request{PullImage: puller(uid, "r.io/app:1", policy), name: "r.io/app:1", registry: "r.io"})
	}
	ask("a", v1.PullIfNotPresent)
	ask("never", v1.PullNever)
	private := pullrecord.Record{Ours: true}
	out := m.handleLook(now, "r.io/app:1", outcome{result: present, ref: "id", record: private})
	var said []string
	for _, e := range out {
		switch e := e.(type) {
		case startPull:
			said = append(said, "pull "+e.name)
		case podMessage:
			if f, ok := e.msg.(messages.ImageFailed); ok {
				said = append(said, e.uid+" "+f.Reason.Code)
			}
		}
	}
	expect(t, "after a look", strings.Join(said, "; "), "never ErrImageNeverPull; pull r.io/app:1")
	out = m.pulledOutcome(now, "r.io/app:1", "", outcome{result: failed, code: messages.ReasonErrImagePull, msg: "denied"})
	failure, ok := out[0].(podMessage).msg.(messages.ImageFailed)
	if !ok || !strings.Contains(failure.Reason.Message, "credentials that this pod does not have") {
		t.Errorf("a refused pull tells %+v", out[0])
	}
	// Once the image was pulled without credentials, all pods may use it, and the next look answers the waiting need.
	now = now.Add(time.Minute)
	m.tick(now)
	public := private
	public.Credentials = map[string]kubeletconfig.ImagePullCredentials{"r.io/app": {NodePodsAccessible: true}}
	said = nil
	for _, e := range m.handleLook(now, "r.io/app:1", outcome{result: present, ref: "id", record: public}) {
		if e, ok := e.(podMessage); ok {
			if _, ok := e.msg.(messages.ImagePulled); ok {
				said = append(said, e.uid)
			}
		}
	}
	expect(t, "answered", strings.Join(said, " "), "a never")
}

// A container needs its own image and those of its volumes. Only the needs of an earlier attempt are dropped.
func TestNeedsOfVolumesStandBesideTheContainers(t *testing.T) {
	b := newMachine(lanes.New(0, 0, 0))
	needs := func() (out []string) {
		for name, im := range b.images {
			for k := range im.needs {
				out = append(out, fmt.Sprintf("%s for %q in %d", name, k.Volume, k.Attempt))
			}
		}
		slices.Sort(out)
		return out
	}
	say := func(image, volume string, attempt uint32) {
		m := ask("u", v1.PullIfNotPresent, 0)
		m.Image, m.Key.Volume, m.Key.Attempt = image, volume, attempt
		b.ask(t0, req(m))
	}
	say("files", "f", 0)
	say("model", "m", 0)
	say("img", "", 0)
	if got := strings.Join(needs(), ", "); got != `files for "f" in 0, img for "" in 0, model for "m" in 0` {
		t.Error(got)
	}
	say("files", "f", 1)
	say("model", "m", 0) // a delayed message
	if got := strings.Join(needs(), ", "); got != `files for "f" in 1, img for "" in 0, model for "m" in 0` {
		t.Error(got)
	}
	of := answers{}
	files, own := ask("u", v1.PullAlways, 0).Key, ask("u", v1.PullAlways, 0).Key
	files.Volume = "f"
	of[own] = pullAnswer{"img", true, t0}
	of[files] = pullAnswer{"files", true, t0}
	if !of.pulled(own, "img") || !of.pulled(files, "files") || of.pulled(own, "files") {
		t.Error(of)
	}
}
