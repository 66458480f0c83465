package images

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Inspection is the actor's detail of an inspection.
type Inspection struct {
	Pulling int     `json:"pulling"`          // slots taken
	Limit   int     `json:"limit"`            // 0: none
	Images  []Image `json:"images,omitempty"` // that somebody waits for, by name
}

// Image is one image that somebody waits for.
type Image struct {
	Name    string    `json:"name"`
	Waiting int       `json:"waiting"` // containers
	Look    string    `json:"look"`    // idle, busy, waiting
	Pull    string    `json:"pull"`    // idle, queued, busy, waiting
	Failed  string    `json:"failed,omitempty"`
	RetryAt time.Time `json:"retryAt,omitzero"`
}

func (b *book) inspect() Inspection {
	out := Inspection{Pulling: b.running}
	if b.limit != math.MaxInt {
		out.Limit = b.limit
	}
	for _, im := range b.images {
		i := Image{Name: im.name, Waiting: len(im.needs), Look: im.look.phase.String(), Pull: im.pull.phase.String()}
		for _, t := range []*try{&im.look, &im.pull} {
			if t.phase == waiting {
				i.Failed, i.RetryAt = t.failed.String(), t.until
			}
		}
		out.Images = append(out.Images, i)
	}
	slices.SortFunc(out.Images, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return out
}
