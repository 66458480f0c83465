package submissions

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

// Pods too long for a quick comparison are only reported to differ, if they do.
func TestDiffOfALongPod(t *testing.T) {
	diff := func(before, after string) string {
		t.Helper()
		long := `{"a": "` + before + `", "b": [` + strings.Repeat("0, ", 1<<13) + "0]}"
		got, err := podDiff(messages.SubmittedPod{Name: "p", Namespace: "n", Before: json.RawMessage(long),
			After: json.RawMessage(strings.Replace(long, before, after, 1))})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := diff("x", "x"); got != "" {
		t.Errorf("%q", got)
	}
	if got := diff("x", "y"); got != "pod n/p differs, and is too long to be compared line by line\n" {
		t.Errorf("%q", got)
	}
}
