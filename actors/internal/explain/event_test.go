package explain

import (
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

func TestWhatAnEventSays(t *testing.T) {
	long := strings.Repeat("ä", maxEvent)
	for _, c := range []struct{ words, sentence, want string }{
		{"Error: ErrImagePull", "image x is not there", "Error: ErrImagePull; image x is not there"},
		{"Back-off: image x is not there", "image x is not there", "Back-off: image x is not there"},
		{"Error", "", "Error"},
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
	if got := Event("Error", long); len(got) > maxEvent {
		t.Errorf("a long cause: %d bytes", len(got))
	}
	if got := EventOf("Error", nil, messages.Reason{Code: "Unhealthy"}); got != "Error" {
		t.Errorf("of no pod: %q", got)
	}
}
