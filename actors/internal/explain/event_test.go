package explain

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

func TestWhatAnEventSays(t *testing.T) {
	long := strings.Repeat("ä", maxEvent)
	for _, c := range []struct{ words, sentence, want string }{
		{"Error: ErrImagePull", "image x is not there", "Error: ErrImagePull; image x is not there"},
		{"Back-off: image x is not there", "image x is not there", "Back-off: image x is not there"},
		{"Error", "", "Error"},
		{"Error: env X: map a does not exist", "map a does not exist; container c needs it",
			"Error: env X: map a does not exist; container c needs it"},
		{"", "image x is not there", "image x is not there"},
	} {
		if got := Event(c.words, c.sentence); got != c.want {
			t.Errorf("%q and %q: %q", c.words, c.sentence, got)
		}
	}
	if got := Event("Error: "+long, "the cause"); len(got) > maxEvent || !strings.HasPrefix(got, "Error: ä") || !strings.HasSuffix(got, " …; the cause") {
		t.Errorf("long words: %d bytes, %.20q … %.20q", len(got), got, got[len(got)-20:])
	}
	if got := Event("the end of it "+long+"the cause", "the cause"); !strings.HasSuffix(got, "; the cause") {
		t.Errorf("words that are cut before the cause: %.20q", got[len(got)-20:])
	}
	if got := Event("it is full. ", "evicted: it is full."); got != "evicted: it is full." {
		t.Errorf("a sentence that has the words: got %q", got)
	}
	if got := Event("Error", long); len(got) > maxEvent {
		t.Errorf("a long cause: %d bytes", len(got))
	}
	probe := messages.Reason{Code: "Unhealthy", Container: "c", Probe: messages.Liveness, Message: "HTTP 500"}
	if got := EventOf("Liveness probe failed: HTTP 500", &v1.Pod{}, probe); got != "Liveness probe failed: HTTP 500" {
		t.Errorf("of a probe: %q", got) // the text needs no cause
	}
	if got := EventOf("Error", nil, messages.Reason{Code: "Unhealthy"}); got != "Error" {
		t.Errorf("of no pod: %q", got)
	}
}

// A program that cannot be executed is no exit code.
func TestEnded_ProgramOfAnotherPlatform(t *testing.T) {
	v := view{pod: &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "a.b/x"}}}}}
	end := &v1.ContainerStateTerminated{ExitCode: 255, Message: "exec /bad: exec format error"}
	if got := Ended(v.pod, "c", end); got != "container c: its command is not a program for this node's architecture" {
		t.Error(got)
	}
}

func TestKilling(t *testing.T) {
	probe := func(kind, policy string) messages.Cause {
		return messages.Cause{Code: messages.CauseProbeFailed, Name: kind, Detail: policy}
	}
	for want, why := range map[string]messages.Cause{
		"Stopping container c":                                           {Text: "Container c is in a reason of the pod's own"},
		"Container c failed liveness probe, will be restarted":           probe("liveness", "Always"),
		"Container c failed startup probe":                               probe("startup", "Never"),
		"Container c definition changed, will be restarted":              {Code: messages.CauseOutdated},
		"Container c resize requires restart, will be restarted":         {Code: messages.CauseResized},
		"Restarting container c, as requested":                           {Code: messages.CauseRenewed},
		`Container is in "unknown" state, try killing it before restart`: {Code: messages.CauseStateUnknown},
		"Container c: an exit, all will be restarted":                    {Code: messages.CauseAllRestarted, Text: "an exit"},
		"FailedPostStartHook":                                            {Code: messages.CausePostStart, Text: "password=secret"},
	} {
		if got := Killing("c", why); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
