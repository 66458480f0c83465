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

// Limits decides when unused images are removed.
type Limits struct {
	// High and Low are imageGCHighThresholdPercent and imageGCLowThresholdPercent. When the use of the file system reaches High,
	// images are removed until it is down to Low. A High of 100 turns that off.
	High, Low int64
	// MinAge is imageMinimumGCAge: images are kept for at least this time after their arrival.
	MinAge time.Duration
	// MaxAge is imageMaximumGCAge: images unused for this time are removed at any use of the disk; 0 turns that off.
	MaxAge time.Duration
}

// imageTimes has the times at which an image was first seen, and last seen in use. As in the kubelet, neither is before the
// actor's start.
type imageTimes struct{ firstSeen, lastUsed time.Time }

// finding is a collection's result for one image.
type finding struct {
	id         string
	names      map[string]bool // its ID and its references
	size       int64
	old        bool   // beyond MaxAge
	keepReason string // the reason why it is kept; empty: it may be removed
	young      bool   // its age is the only reason to keep it
	users      []messages.ImageUser
}

// collection is one collection of images. It is pure: next returns the image to remove, and ended records the result.
type collection struct {
	findings        map[string]finding    // by ID
	held            users                 // images that pods are about to use; later requests are added
	request         *messages.RemoveImage // it is for this image alone
	queue           []finding
	all             bool
	need, freed     int64 // bytes
	removed         int
	usage           int64 // percent, before
	inUse, tooYoung int   // kept images
	pulls           int   // in progress: they take space that no collection frees
	failed          error // the first failed removal
}

// keeps returns the reason to keep an image regardless of its age, and its users. The reason is empty if there is none.
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

// decide updates the sightings, and selects the images to remove: all beyond MaxAge, and the least recently used ones until the
// use is down to the low threshold. With all, it selects every image that may be removed. held are the images that pods are
// about to use.
func decide(seen map[string]imageTimes, s survey, held users, l Limits, all bool, now time.Time) *collection {
	c := &collection{all: all, findings: map[string]finding{}, held: held}
	present := map[string]bool{}
	for _, img := range s.images {
		at, names := seen[img.GetId()], allNames(img)
		if at.firstSeen.IsZero() {
			at.firstSeen = now
		}
		why, by := s.keeps(img, names, held)
		if why != "" {
			at.lastUsed = now
		}
		seen[img.GetId()], present[img.GetId()] = at, true
		f := finding{keepReason: why, users: by, id: img.GetId(), names: names, size: int64(min(img.GetSize(), math.MaxInt64)),
			old: l.MaxAge > 0 && now.Sub(at.firstSeen) > l.MaxAge && now.Sub(at.lastUsed) > l.MaxAge}
		switch {
		case why != "":
			c.inUse++
		case now.Sub(at.firstSeen) < l.MinAge:
			c.tooYoung++
			f.keepReason, f.young = fmt.Sprintf("it has been here for less than %s, as far as is known", l.MinAge), true
		default:
			c.queue = append(c.queue, f)
		}
		c.findings[f.id] = f
	}
	maps.DeleteFunc(seen, func(id string, _ imageTimes) bool { return !present[id] })
	slices.SortFunc(c.queue, func(x, y finding) int {
		a, b := seen[x.id], seen[y.id]
		return cmp.Or(a.lastUsed.Compare(b.lastUsed), a.firstSeen.Compare(b.firstSeen), strings.Compare(x.id, y.id))
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

// next returns the next image to remove; nil at the end. It skips images that have been needed since.
func (c *collection) next() *finding {
	for len(c.queue) > 0 {
		r := c.queue[0]
		c.queue = c.queue[1:]
		if _, wanted := c.held.of(r.names); !wanted && (r.old || c.freed < c.need) {
			return &r
		}
	}
	return nil
}

// recordRemoval records the result of a removal.
func (c *collection) recordRemoval(r finding, err error) {
	if err != nil {
		c.failed = cmp.Or(c.failed, err)
		return
	}
	c.removed++
	c.freed += r.size
}

// keptSummary describes the kept images, and the pulls that also take space.
func (c *collection) keptSummary() string {
	text := fmt.Sprintf("images kept: %d in use, %d not here for long enough", c.inUse, c.tooYoung)
	if c.pulls > 0 {
		text += fmt.Sprintf("; pulls under way, which take space, too: %d", c.pulls)
	}
	return text
}

// shortfall returns the reason why less was freed than needed; empty if enough was freed. Its first part is the kubelet's text. A
// collection of all unused images reports only failed removals.
func (c *collection) shortfall() string {
	text := ""
	switch {
	case c.all && c.failed == nil, !c.all && c.freed >= c.need:
		return ""
	case !c.all:
		text = fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, but only "+
			"found %d bytes eligible to free; ", c.need, c.freed)
	}
	text += c.keptSummary()
	if c.failed != nil {
		text += "; a removal failed: " + c.failed.Error()
	}
	return text
}
