package images

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/messages"
)

// newsOf formats the messages to pods, with "again" for those that cause no Event.
func newsOf(effects []effect) string {
	var out []string
	for _, e := range effects {
		t, ok := e.(podMessage)
		if !ok {
			continue
		}
		var line string
		again := false
		switch m := t.msg.(type) {
		case messages.ImagePulled:
			line, again = fmt.Sprintf("pulled in %s of %s, %d bytes", m.Took, m.Waited, m.Size), m.Again
			if !m.Pulled {
				line = "there"
			}
		case messages.ImageFailed:
			line, again = m.Reason.Code+" "+m.Reason.Cause.Text, m.Again
		case messages.ImageAwaited:
			line, again = m.Reason.Code, m.Again
		}
		if again {
			line += " again"
		}
		out = append(out, t.uid+": "+line)
	}
	return strings.Join(out, "; ")
}

func wants(t *testing.T, what string, got []effect, want string) {
	t.Helper()
	if text := newsOf(got); text != want {
		t.Errorf("%s: %q, want %q", what, text, want)
	}
}

// The same state of a pull is sent for each question, and only the first message is not marked as repeated.
func TestWhatIsReportedAgainIsSaidToBe(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	question := req(ask("a", v1.PullAlways, 1))
	other := req(messages.PullImage{Key: key("b", 0), Image: "other", Policy: v1.PullAlways, Priority: 2})
	wants(t, "asked", b.ask(at(0), question), "a: Pulling")
	wants(t, "asked again", b.ask(at(1), question), "a: Pulling again")
	wants(t, "another", b.ask(at(1), other), "b: PullQueued")
	wants(t, "a failure", b.pulledOutcome(at(2), "img", "", outcome{result: failed, code: "ErrImagePull", msg: "denied"}),
		"a: ErrImagePull denied; b: Pulling")
	wants(t, "asked in the back-off", b.ask(at(3), question), "a: ImagePullBackOff denied")
	wants(t, "and again", b.ask(at(4), question), "a: ImagePullBackOff denied again")
	wants(t, "the other's end", b.pulledOutcome(at(5), "other", "", outcome{result: present, ref: "id2", size: 7}),
		"b: pulled in 3s of 4s, 7 bytes")
	wants(t, "the back-off is noticed", b.tick(at(7)), "a: ImagePullBackOff denied again")
	wants(t, "tried again", b.tick(at(12)), "a: Pulling")
	wants(t, "a second failure", b.pulledOutcome(at(13), "img", "", outcome{result: failed, code: "ErrImagePull", msg: "denied"}),
		"a: ErrImagePull denied")
	b.tick(at(33))
	wants(t, "its end", b.pulledOutcome(at(34), "img", "", outcome{result: present, ref: "id", size: 9}),
		"a: pulled in 1s of 34s, 9 bytes")
	b.ask(at(35), question)
	wants(t, "an answer that was lost", b.handleLook(at(35), "img", outcome{result: present, ref: "id"}),
		"a: pulled in 0s of 0s, 0 bytes again")
}

// A present image is reported as new once per attempt.
func TestPresentImage_IsReportedPerAttempt(t *testing.T) {
	b := newMachine(lanes.New(1, 0, 0))
	m := ask("a", v1.PullIfNotPresent, 1)
	for _, want := range []string{"a: there", "a: there again"} {
		b.ask(t0, req(m))
		wants(t, "a question", b.handleLook(t0, "img", outcome{result: present, ref: "id"}), want)
	}
	m.Key.Attempt++
	b.ask(t0, req(m))
	wants(t, "the next attempt", b.handleLook(t0, "img", outcome{result: present, ref: "id"}), "a: there")
}
