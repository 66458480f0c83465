package images

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

var start0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func named(id string, size uint64, tags ...string) *runtimeapi.Image {
	return &runtimeapi.Image{Id: id, RepoTags: tags, Size: size}
}

// removals runs a collection in which every removal succeeds, and returns the IDs of the images.
func removals(c *collection) string {
	var ids []string
	for r := c.next(); r != nil; r = c.next() {
		ids = append(ids, r.id)
		c.recordRemoval(*r, nil)
	}
	return strings.Join(ids, " ")
}

func TestDecide(t *testing.T) {
	at := func(minutes int) time.Time { return start0.Add(time.Duration(minutes) * time.Minute) }
	list := []*runtimeapi.Image{named("a", 10, "docker.io/library/a:latest"), named("b", 10), named("c", 10), named("d", 10)}
	seen := map[string]imageTimes{
		"a": {at(0), at(9)}, "b": {at(0), at(5)}, "c": {at(1), time.Time{}}, "d": {at(0), time.Time{}}, "gone": {at(0), at(1)},
	}
	limits := Limits{High: 85, Low: 80, MinAge: 2 * time.Minute}
	pinned := named("p", 10)
	pinned.Pinned = true
	for name, c := range map[string]struct {
		images []*runtimeapi.Image
		used   []string
		held   []string
		left   int64 // of 100
		limits Limits
		all    bool
		want   string
	}{
		"below the threshold":                {images: list, left: 16, limits: limits},
		"at the threshold, those never used": {images: list, left: 15, limits: limits, want: "d"},
		"more, the least recently used":      {images: list, left: 0, limits: limits, want: "d c"},
		"until the low one":                  {images: list, left: 0, limits: Limits{High: 85, Low: 65}, want: "d c b a"},
		"in use by ID":                       {images: list, used: []string{"d"}, left: 15, limits: limits, want: "c"},
		"in use by name":                     {images: list, used: []string{"docker.io/library/a:latest"}, all: true, left: 50, limits: limits, want: "d c b"},
		"held by name":                       {images: list, held: []string{fullName("a")}, all: true, left: 50, limits: limits, want: "d c b"},
		"all":                                {images: list, left: 99, limits: limits, all: true, want: "d c b a"},
		"young":                              {images: append(list, named("new", 10)), left: 99, limits: limits, all: true, want: "d c b a"},
		"pinned":                             {images: []*runtimeapi.Image{pinned}, all: true},
		"the threshold is off":               {images: list, left: 0, limits: Limits{High: 100, Low: 80}},
		"old ones": {images: list, left: 99, limits: Limits{High: 85, Low: 80, MaxAge: 8*time.Minute + time.Second},
			want: "d c"},
		"old ones count as freed": {images: list, left: 5, limits: Limits{High: 85, Low: 80, MaxAge: 9 * time.Minute}, want: "d c"},
	} {
		used, held := users{}, users{}
		for _, u := range c.used {
			used[u] = nil
		}
		for _, h := range c.held {
			held[h] = nil
		}
		known := map[string]imageTimes{}
		for id, s := range seen {
			known[id] = s
		}
		s := survey{images: c.images, used: used, space: Space{c.left, 100}}
		got := decide(known, s, held, c.limits, c.all, at(10))
		if ids := removals(got); ids != c.want {
			t.Errorf("%s: removed %q, want %q", name, ids, c.want)
		}
		if _, there := known["gone"]; there {
			t.Errorf("%s: an image that is gone is remembered", name)
		}
	}
}

// A clock that is set changes no age of an image.
func TestDecide_ClockSet(t *testing.T) {
	limits := Limits{High: 85, Low: 80, MinAge: 2 * time.Minute, MaxAge: 8 * time.Minute}
	s := survey{images: []*runtimeapi.Image{named("a", 10), named("b", 10)}, used: users{"a": nil}, space: Space{99, 100}}
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		seen, now := map[string]imageTimes{}, supervisortest.Monotonic(start0)
		decide(seen, s, nil, limits, false, now)
		now = supervisortest.SetClock(now, jump)
		for _, c := range []struct {
			after time.Duration
			all   bool
			want  string
		}{{time.Minute, true, ""}, {3 * time.Minute, true, "b"}, {7 * time.Minute, false, ""}, {9 * time.Minute, false, "b"}} {
			if got := removals(decide(seen, s, nil, limits, c.all, now.Add(c.after))); got != c.want {
				t.Errorf("clock set by %s: after %s (all %t): removed %q, want %q", jump, c.after, c.all, got, c.want)
			}
		}
	}
}

func TestWhatIsLacking(t *testing.T) {
	s := survey{images: []*runtimeapi.Image{named("a", 3), named("b", 3), named("c", 3)}, used: users{"b": nil}, space: Space{5, 100}}
	c := decide(map[string]imageTimes{"a": {firstSeen: start0}}, s, nil, Limits{High: 85, Low: 80, MinAge: time.Minute}, false, start0.Add(time.Hour))
	removals(c)
	want := "Failed to garbage collect required amount of images. Attempted to free 15 bytes, but only found 3 bytes eligible to free; " +
		"images kept: 1 in use, 1 not here for long enough"
	if got := c.shortfall(); got != want || c.usage != 95 {
		t.Errorf("%d%%: %q", c.usage, got)
	}
	c = &collection{all: true, need: math.MaxInt64, queue: []finding{{id: "a", size: 1}}}
	if r := c.next(); r == nil {
		t.Fatal("nothing is removed")
	} else if c.recordRemoval(*r, nil); c.shortfall() != "" {
		t.Errorf("%q", c.shortfall())
	}
	if c.recordRemoval(finding{}, errors.New("refused")); !strings.Contains(c.shortfall(), "a removal failed: refused") {
		t.Errorf("%q", c.shortfall())
	}
}

func TestFullName(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string]string{
		"a": "docker.io/library/a:latest", "x/a:1": "docker.io/x/a:1", "h:5/a": "h:5/a:latest", "h:5/a:1" + digest: "h:5/a" + digest,
		"sha256:" + strings.Repeat("a", 64): "sha256:" + strings.Repeat("a", 64), "": "",
	} {
		if got := fullName(ref); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

// For any set of images, those in use, held, pinned or young are kept. The least recently used are removed first. No more than
// needed are removed, except images beyond MaxAge.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{MinAge: time.Duration(rapid.IntRange(0, 20).Draw(t, "minAge")) * time.Minute}
		limits.Low = rapid.Int64Range(0, 99).Draw(t, "low")
		limits.High = rapid.Int64Range(limits.Low+1, 100).Draw(t, "high")
		if rapid.Bool().Draw(t, "aged") {
			limits.MaxAge = limits.MinAge + time.Duration(rapid.IntRange(1, 60).Draw(t, "maxAge"))*time.Minute
		}
		now := start0.Add(2 * time.Hour)
		seen, used, held := map[string]imageTimes{}, users{}, users{}
		s := survey{used: used, space: Space{rapid.Int64Range(0, 1000).Draw(t, "left"), 1000}}
		keep := map[string]bool{}
		for i := range rapid.IntRange(0, 12).Draw(t, "images") {
			id := fmt.Sprintf("i%d", i)
			img := named(id, rapid.Uint64Range(1, 300).Draw(t, "size"), "docker.io/library/"+id+":1")
			at := imageTimes{firstSeen: now.Add(-time.Duration(rapid.IntRange(0, 120).Draw(t, "first")) * time.Minute)}
			if rapid.Bool().Draw(t, "wasUsed") {
				at.lastUsed = at.firstSeen.Add(time.Duration(rapid.Int64Range(0, int64(now.Sub(at.firstSeen))).Draw(t, "used")))
			}
			keep[id] = now.Sub(at.firstSeen) < limits.MinAge
			switch rapid.IntRange(0, 6).Draw(t, "state") {
			case 0:
				used[id], keep[id] = nil, true
			case 1:
				used["docker.io/library/"+id+":1"], keep[id] = nil, true
			case 2:
				held[fullName(id+":1")], keep[id] = nil, true
			case 3:
				img.Pinned, keep[id] = true, true
			}
			seen[id], s.images = at, append(s.images, img)
		}
		before := map[string]imageTimes{}
		for id, at := range seen {
			before[id] = at
		}
		all := rapid.Bool().Draw(t, "all")
		c := decide(seen, s, held, limits, all, now)
		var last imageTimes
		var gone []string
		for r := c.next(); r != nil; r = c.next() {
			if keep[r.id] {
				t.Fatalf("%s is removed", r.id)
			}
			at := before[r.id]
			if at.lastUsed.Before(last.lastUsed) || at.lastUsed.Equal(last.lastUsed) && at.firstSeen.Before(last.firstSeen) {
				t.Fatalf("%s is removed too late", r.id)
			}
			last = at
			if c.freed >= c.need && !r.old {
				t.Fatalf("%s is removed in vain", r.id)
			}
			gone = append(gone, r.id)
			c.recordRemoval(*r, nil)
		}
		if !all && c.usage < limits.High && limits.MaxAge == 0 && len(gone) > 0 {
			t.Fatalf("%v are removed at %d%%", gone, c.usage)
		}
		for id := range before {
			old := limits.MaxAge > 0 && now.Sub(before[id].lastUsed) > limits.MaxAge && now.Sub(before[id].firstSeen) > limits.MaxAge
			if must := all || c.freed < c.need || old; must && !keep[id] && !slices.Contains(gone, id) {
				t.Fatalf("%s stays", id)
			}
			_, inUse := used[id]
			if _, wanted := held[fullName(id+":1")]; keep[id] && (inUse || wanted) && !seen[id].lastUsed.Equal(now) {
				t.Fatalf("%s is not noted as used", id)
			}
		}
	})
}
