package gates

import (
	"slices"
	"strings"
	"testing"
)

func TestGateTables(t *testing.T) {
	var names []string
	for _, g := range groups {
		names = append(names, strings.Fields(g.names)...)
	}
	names = append(names, strings.Fields(retired)...)
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			t.Errorf("%s is listed twice", name)
		}
	}
	if len(names) < 400 {
		t.Errorf("only %d gates", len(names))
	}
}
