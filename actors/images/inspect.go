package images

import (
	"maps"
	"slices"
	"time"
)

// Inspection is the actor's answer to Inspect.
type Inspection struct {
	Pulling    int        `json:"pulling"` // slots taken
	Limit      int        `json:"limit"`
	Registries []Registry `json:"registries,omitempty"` // in use, by name
	Images     []Image    `json:"images,omitempty"`     // needed or in work, by name
	Known      int        `json:"known"`                // present images
	Leased     int        `json:"leased"`               // containers with a lease of an image
	Collecting bool       `json:"collecting"`
}

// Registry is one lane of the queue.
type Registry struct {
	Name    string `json:"name"`
	Pulling int    `json:"pulling"`
}

// Image is an image that is needed, or has a look or pull in progress.
type Image struct {
	Name    string    `json:"name"`
	Waiting int       `json:"waiting"` // containers
	Look    string    `json:"look"`    // idle, busy, waiting
	Pulls   []Pull    `json:"pulls,omitempty"`
	Failed  string    `json:"failed,omitempty"` // the latest look
	RetryAt time.Time `json:"retryAt,omitzero"`
}

// Pull is the state of the pulls of an image with the same credentials.
type Pull struct {
	Credentials int       `json:"credentials"` // the number of credentials from pull secrets
	State       string    `json:"state"`       // idle, queued, busy, waiting
	Since       time.Time `json:"since,omitzero"`
	Failed      string    `json:"failed,omitempty"`
	RetryAt     time.Time `json:"retryAt,omitzero"`
}

func (b *machine) inspect() Inspection {
	all, of := b.queue.Running()
	out := Inspection{Pulling: all, Limit: b.queue.Limit()}
	for _, registry := range slices.Sorted(maps.Keys(of)) {
		out.Registries = append(out.Registries, Registry{Name: registry, Pulling: of[registry]})
	}
	for _, name := range slices.Sorted(maps.Keys(b.images)) {
		im := b.images[name]
		i := Image{Name: name, Waiting: len(im.needs), Look: im.look.phase.String()}
		if im.look.phase == waiting {
			i.Failed, i.RetryAt = im.look.failed.String(), im.look.until
		}
		for _, id := range slices.Sorted(maps.Keys(im.pulls)) {
			p := im.pulls[id]
			shown := Pull{Credentials: len(p.credentials.list), State: p.phase.String(), Since: p.since}
			if p.phase == waiting {
				shown.Failed, shown.RetryAt = p.failed.String(), p.until
			}
			i.Pulls = append(i.Pulls, shown)
		}
		out.Images = append(out.Images, i)
	}
	return out
}
