package csi

import (
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
		"a valid label must be":                  {Name: "disk", NodeID: "i", Topology: map[string]string{"zone": "a b"}},
	} {
		if err := d.check(); (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
	}
}
