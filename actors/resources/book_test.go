package resources

import (
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// A listing ends when it ends: by then the actor of the pods may have begun anew, and its first wish names nobody. What is not
// known to be wanted by everybody's word is not known to be left behind, and processes run in it.
func TestAListingActsOnlyOnAWishThatIsHeard(t *testing.T) {
	ends := func(then ...messages.PodCgroupsWanted) []string {
		b := newBook()
		b.nodeMade(nil, time.Unix(0, 0))
		both := messages.PodCgroupsWanted{Heard: true, UIDs: map[string]bool{"a": true, "b": true}}
		var listed bool
		for _, m := range append([]messages.PodCgroupsWanted{both}, then...) {
			for _, e := range b.wanted(m) {
				_, is := e.what.(beginList)
				listed = listed || is
			}
		}
		if !listed {
			t.Fatal("nothing is listed")
		}
		var out []string
		for _, e := range b.found([]string{"a", "b"}, nil) {
			if _, is := e.what.(beginRemove); is {
				out = append(out, e.uid)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		then []messages.PodCgroupsWanted
		want []string
	}{
		"nothing changes":                  {nil, nil},
		"one is wanted no more":            {[]messages.PodCgroupsWanted{{Heard: true, UIDs: map[string]bool{"a": true}}}, []string{"b"}},
		"pods begins anew":                 {[]messages.PodCgroupsWanted{{}}, nil},
		"and has heard some of the source": {[]messages.PodCgroupsWanted{{}, {UIDs: map[string]bool{"a": true}}}, nil},
	} {
		if got := ends(c.then...); !slices.Equal(got, c.want) {
			t.Errorf("%s: removed are %v, want %v", name, got, c.want)
		}
	}
}
