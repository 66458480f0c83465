package manifest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

const threeMaps = "# first\n" + `apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b}
daata: {}
`

func batches(t *testing.T, text string, most int) (out [][]byte) {
	t.Helper()
	all, err := Batches("f", []byte(text), most)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		out = append(out, b.Text())
	}
	return out
}

// Parts of a file have the documents of the whole, each once, and their lines.
func TestBatches(t *testing.T) {
	for _, most := range []int{1, 2, 3, 9} {
		var got []string
		for _, part := range batches(t, threeMaps, most) {
			for _, c := range split(part, math.MaxInt) {
				got = append(got, fmt.Sprintf("%d %d", c.line, strings.Count(string(c.data), "kind:")))
			}
		}
		if want := []string{"1 1", "5 1", "9 1"}; most < 9 && strings.Join(got[1:], " ") != strings.Join(want[1:], " ") || len(got) != 3 {
			t.Errorf("parts of %d: %v", most, got)
		}
	}
	_, problems := LoadSubmission("f", batches(t, threeMaps, 1)[2], Options{})
	if len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "f:13: daata: ") {
		t.Errorf("a fault of the last part: %v", problems)
	}
	if parts := batches(t, "{\"a\": 1}\n{\"b\": 2}", 1); len(parts) != 2 || string(parts[1]) != "\n{\"b\": 2}" {
		t.Errorf("JSON: %q", parts)
	}
}

// Documents that a node does not run are omitted, and the lines of the rest stay.
func TestWithoutUnsupported(t *testing.T) {
	text, skipped := WithoutUnsupported([]byte(threeMaps))
	if !slices.Equal(skipped, []SkippedDocument{{"Ingress", "web"}}) {
		t.Errorf("skipped %v", skipped)
	}
	s, problems := LoadSubmission("f", text, Options{})
	if len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "f:13: daata: ") || len(s.Objects.ConfigMaps) != 1 {
		t.Errorf("%v %v", problems, s.Objects)
	}
}
