package submissions

import (
	"strings"
	"testing"
)

func TestLineDiff(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a b c", "a b c", ""},
		{"a b c", "a x c", " a -b +x c"},
		{"a", "a b", " a +b"},
		{"1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 x", " …  6  7  8 -9 +x"},
	} {
		want := strings.ReplaceAll(c.want, "  ", "\n ")
		got := lineDiff(strings.Fields(c.a), strings.Fields(c.b))
		want = strings.NewReplacer(" -", "\n-", " +", "\n+", " c", "\n c").Replace(want)
		if strings.TrimSuffix(got, "\n") != want {
			t.Errorf("%q %q:\n%q, want\n%q", c.a, c.b, got, want)
		}
	}
	long := make([]string, 1<<13)
	if got := lineDiff(long, append([]string{"x"}, long...)); !strings.Contains(got, "too long") {
		t.Errorf("%d bytes", len(got))
	}
}
