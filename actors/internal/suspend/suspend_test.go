package suspend

import "testing"

// The test's machine is not suspended meanwhile.
func TestTotal(t *testing.T) {
	if got := min(Total(), Total(), Total()); got.Abs() >= Short {
		t.Errorf("got a suspension of %s, want none", got)
	}
}
