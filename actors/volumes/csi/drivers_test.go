package csi

import (
	"fmt"
	"strings"
	"testing"
)

// A driver that the API server would reject in a CSINode or in labels is refused when it registers. Otherwise the writes of
// other drivers would fail.
func TestDriversThatTheAPIWouldNotHave(t *testing.T) {
	for what, d := range map[string]Driver{
		"":                                       {Name: "disk.example.org", NodeID: strings.Repeat("i", 192), Topology: map[string]string{"example.org/zone": "a"}},
		"its name":                               {Name: strings.Repeat("n", 64), NodeID: "i"},
		"RFC 1123":                               {Name: "a_b", NodeID: "i"},
		"its ID of this node is longer than 192": {Name: "disk", NodeID: strings.Repeat("i", 193)},
		"name part must consist of":              {Name: "disk", NodeID: "i", Topology: map[string]string{"a b": "x"}},
		"more than 64 segments":                  {Name: "disk", NodeID: "i", Topology: many(65)},
		"a valid label must be":                  {Name: "disk", NodeID: "i", Topology: map[string]string{"zone": "a b"}},
	} {
		if err := d.check(); (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
	}
}

func many(segments int) map[string]string {
	out := map[string]string{}
	for i := range segments {
		out[fmt.Sprintf("example.org/zone%d", i)] = "a"
	}
	return out
}
