package crilog

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func TestRotatedAndLeftovers(t *testing.T) {
	names := []string{
		"0.log", "0.log.20260701-110000", "0.log.20260701-100000.gz", "0.log.20260701-100000", "0.log.20260701-110000.tmp",
		"1.log", "1.log.20260701-110000", "0.log.hand-made", "0.log.gz", "0.log.20260231-110000", "0.log.tmp",
		"0.log.20260701-090000.gz.tmp",
	}
	var got []string
	for _, f := range Rotated(names, "0.log") {
		got = append(got, f.Name)
	}
	if want := []string{"0.log.20260701-100000.gz", "0.log.20260701-110000"}; !slices.Equal(got, want) {
		t.Errorf("rotated are %v, want %v", got, want)
	}
	want := []string{"0.log.20260701-090000.gz.tmp", "0.log.20260701-100000", "0.log.20260701-110000.tmp"}
	if got := Leftovers(names, "0.log"); !slices.Equal(got, want) {
		t.Errorf("left over are %v, want %v", got, want)
	}
}

func TestPlanRotation(t *testing.T) {
	for _, c := range []struct {
		name  string
		names []string
		files int
		want  Plan
	}{
		{"the first", []string{"0.log"}, 5, Plan{To: "0.log.20260701-120000"}},
		{
			"the one before is compressed", []string{"0.log", "0.log.20260701-110000"}, 5,
			Plan{To: "0.log.20260701-120000", Compress: []string{"0.log.20260701-110000"}},
		},
		{
			"one too many", []string{"0.log", "0.log.20260701-110000", "0.log.20260701-100000.gz"}, 3,
			Plan{To: "0.log.20260701-120000", Remove: []string{"0.log.20260701-100000.gz"},
				Compress: []string{"0.log.20260701-110000"}},
		},
		{"two files", []string{"0.log", "0.log.20260701-110000"}, 2,
			Plan{To: "0.log.20260701-120000", Remove: []string{"0.log.20260701-110000"}}},
		{
			"the clock was set back", []string{"0.log", "0.log.20260701-235959"}, 5,
			Plan{To: "0.log.20260702-000000", Compress: []string{"0.log.20260701-235959"}},
		},
		{
			"twice a second", []string{"0.log", "0.log.20260701-120000.gz"}, 5, Plan{To: "0.log.20260701-120001"},
		},
	} {
		got := PlanRotation(c.names, "0.log", noon, c.files)
		if got.To != c.want.To || !slices.Equal(got.Remove, c.want.Remove) || !slices.Equal(got.Compress, c.want.Compress) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Regardless of number and time of rotations, no file is overwritten, the order is kept, the number of files stays within the
// limit, and only the newest rotated file is not compressed.
func TestRotations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(2, 6).Draw(t, "files")
		names, order := []string{"0.log"}, []string(nil)
		for range rapid.IntRange(1, 12).Draw(t, "rotations") {
			at := noon.Add(time.Duration(rapid.IntRange(-5000, 5000).Draw(t, "seconds")) * time.Second)
			p := PlanRotation(names, "0.log", at, limit)
			if slices.Contains(names, p.To) || slices.Contains(names, p.To+compressed) {
				t.Fatalf("%s is there already: %v", p.To, names)
			}
			names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(p.Remove, n) })
			for i, n := range names {
				if slices.Contains(p.Compress, n) {
					names[i] = n + compressed
				}
			}
			names = append(names, p.To)
			order = append(order, p.To)
			rotated := Rotated(names, "0.log")
			if len(rotated)+1 > limit || rotated[len(rotated)-1].Compressed {
				t.Fatalf("with at most %d files there are %v", limit, names)
			}
			for i, f := range rotated {
				if want := order[len(order)-len(rotated)+i]; strings.TrimSuffix(f.Name, compressed) != want {
					t.Fatalf("at %d is %s, want %s", i, f.Name, want)
				}
				if f.Compressed != (i < len(rotated)-1) {
					t.Fatalf("compressed are %v", rotated)
				}
			}
		}
	})
}
