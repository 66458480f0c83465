package images

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Limits say when unused images are removed.
type Limits struct {
	// High and Low are imageGCHighThresholdPercent and imageGCLowThresholdPercent: from which use of their file system on images
	// are removed, and down to which. A High of 100 turns that off.
	High, Low int64
	// MinAge is imageMinimumGCAge: an image is not removed before it has been here for so long.
	MinAge time.Duration
	// MaxAge is imageMaximumGCAge: an image that was not used for so long is removed at any use of the disk; 0: none is.
	MaxAge time.Duration
}

// sighting is what is remembered of an image: since when it is here, and when it was seen in use last. Both count from the
// actor's start at the earliest, as the kubelet's.
type sighting struct{ first, used time.Time }

// finding is what a collection has found of an image.
type finding struct {
	id    string
	names map[string]bool // its ID and its references
	size  int64
	old   bool   // beyond MaxAge
	kept  string // why it stays
	young bool   // it is kept for that alone
	users []messages.ImageUser
}

// collection is one collection of images. It is pure: next says what to remove, ended how that went.
type collection struct {
	found           map[string]finding    // by ID
	held            users                 // those that pods are about to use; what is asked for since is added
	asked           *messages.RemoveImage // it is for this image alone
	line            []finding
	all             bool
	need, freed     int64 // bytes
	removed         int
	usage           int64 // percent, before
	inUse, tooYoung int   // images that are kept
	pulls           int   // under way: they take space that no collection frees
	failed          error // the first that the runtime refused
}

// keeps says why an image stays, whatever its age, and for whom; empty: nothing keeps it.
func (s survey) keeps(img *runtimeapi.Image, names map[string]bool, held users) (why string, by []messages.ImageUser) {
	using, used := s.used.of(names)
	waiting, wanted := held.of(names)
	by = append(using, waiting...)
	switch {
	case len(using) > 0:
		why = "it is in use"
	case used:
		why = "it is that of the pods' sandboxes"
	case img.GetPinned():
		why = "the runtime has it pinned"
	case wanted:
		why = "a pod is about to use it"
	}
	return why, by
}

// decide updates what is remembered of images, and chooses those that are to go: the ones beyond MaxAge, and as many others as
// bring the use down to the low threshold, the least recently used first; with all, every one that may. held are the images that
// pods are about to use.
func decide(seen map[string]sighting, s survey, held users, l Limits, all bool, now time.Time) *collection {
	c := &collection{all: all, found: map[string]finding{}, held: held}
	present := map[string]bool{}
	for _, img := range s.images {
		at, names := seen[img.GetId()], allNames(img)
		if at.first.IsZero() {
			at.first = now
		}
		why, by := s.keeps(img, names, held)
		if why != "" {
			at.used = now
		}
		seen[img.GetId()], present[img.GetId()] = at, true
		f := finding{kept: why, users: by, id: img.GetId(), names: names, size: int64(min(img.GetSize(), math.MaxInt64)),
			old: l.MaxAge > 0 && now.Sub(at.first) > l.MaxAge && now.Sub(at.used) > l.MaxAge}
		switch {
		case why != "":
			c.inUse++
		case now.Sub(at.first) < l.MinAge:
			c.tooYoung++
			f.kept, f.young = fmt.Sprintf("it has been here for less than %s, as far as is known", l.MinAge), true
		default:
			c.line = append(c.line, f)
		}
		c.found[f.id] = f
	}
	maps.DeleteFunc(seen, func(id string, _ sighting) bool { return !present[id] })
	slices.SortFunc(c.line, func(x, y finding) int {
		a, b := seen[x.id], seen[y.id]
		return cmp.Or(a.used.Compare(b.used), a.first.Compare(b.first), strings.Compare(x.id, y.id))
	})
	if all {
		c.need = math.MaxInt64
	} else if s.space.Capacity > 0 {
		left := min(s.space.Available, s.space.Capacity)
		c.usage = 100 - int64(float64(left)/float64(s.space.Capacity)*100)
		if l.High < 100 && c.usage >= l.High {
			c.need = max(int64(float64(s.space.Capacity)/100*float64(100-l.Low))-left, 0)
		}
	}
	return c
}

// next is the next image to remove, which nobody needs by now; nil at the end.
func (c *collection) next() *finding {
	for len(c.line) > 0 {
		r := c.line[0]
		c.line = c.line[1:]
		if _, wanted := c.held.of(r.names); !wanted && (r.old || c.freed < c.need) {
			return &r
		}
	}
	return nil
}

// ended takes the end of a removal.
func (c *collection) ended(r finding, err error) {
	if err != nil {
		c.failed = cmp.Or(c.failed, err)
		return
	}
	c.removed++
	c.freed += r.size
}

// kept says which images were left, and what else takes space.
func (c *collection) kept() string {
	text := fmt.Sprintf("images kept: %d in use, %d not here for long enough", c.inUse, c.tooYoung)
	if c.pulls > 0 {
		text += fmt.Sprintf("; pulls under way, which take space, too: %d", c.pulls)
	}
	return text
}

// lack says why less was freed than is needed, the first part in the kubelet's words; empty where nothing is lacking. A
// collection of all unused images lacks nothing but what the runtime refused.
func (c *collection) lack() string {
	text := ""
	switch {
	case c.all && c.failed == nil, !c.all && c.freed >= c.need:
		return ""
	case !c.all:
		text = fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, but only "+
			"found %d bytes eligible to free; ", c.need, c.freed)
	}
	text += c.kept()
	if c.failed != nil {
		text += "; a removal failed: " + c.failed.Error()
	}
	return text
}
