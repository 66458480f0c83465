package threshold

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQuantity(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "0%": 0, "100%": 0, "25%": 250, "1Ki": 1024, "1.5Gi": 3 << 29, "7": 7, "a": 0, "x%": 0,
	} {
		if q := Quantity(text, 1000); q.Value() != want {
			t.Errorf("%q: %s, want %d", text, q.String(), want)
		}
	}
}

// Any text has a quantity; one without percent sign equals its parsed value.
func FuzzQuantity(f *testing.F) {
	for _, s := range []string{"", "5%", "100Mi", "1e3", "0.1%", "99.99999%", "1.5Gi", "-1", "%", "Inf%"} {
		f.Add(s, int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, text string, capacity int64) {
		q := Quantity(text, capacity)
		if _, err := resource.ParseQuantity(text); err == nil && text != "" {
			if want := resource.MustParse(text); q.Cmp(want) != 0 {
				t.Errorf("%q is %s", text, q.String())
			}
		}
	})
}
