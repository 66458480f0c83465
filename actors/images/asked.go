package images

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// This file answers "playlet images". A list is a survey, the removal of one image a collection of that image alone, and a pull
// is a need like a pod's. A question about work in progress gets the progress as its answer, and the client asks again: no
// question waits in the actor.

const (
	// fetchUID is the prefix of the UID in the key of a fetch, which has no pod.
	fetchUID = "fetch/"
	// fetchKept limits how long the result of a fetch is kept, for a client that missed it.
	fetchKept = 10 * time.Minute
	// maxFetches limits the number of fetches kept. Clients share it.
	maxFetches = 64
)

// fetch is a pull that a person requested.
type fetch struct {
	image       string
	requestedAt time.Time // the latest request
	answer      messages.ImageFetched
	release     func() // releases its place
}

// take records the progress or the result from a message for a pod.
func (f *fetch) take(msg any) {
	switch m := msg.(type) {
	case messages.ImageAwaited:
		f.answer = messages.ImageFetched{Waiting: m.Reason.Message, Since: m.Reason.Since}
	case messages.ImagePulled:
		f.answer = messages.ImageFetched{ID: m.Ref, Size: m.Size, Took: m.Took}
	case messages.ImageFailed:
		cause, remedy := explain.Pull(f.image, m.Reason)
		f.answer = messages.ImageFetched{Failed: cause, Remedy: remedy}
	}
}

// handleFetchMessage handles a message about a fetch. A fetch ends with the first failure.
func (a *images) handleFetchMessage(ctx supervisors.Context, id string, e podMessage) {
	f := a.fetches[id]
	if f == nil {
		return
	}
	f.take(e.msg)
	if f.answer.Failed != "" {
		a.carryOut(ctx, a.machine.forget(ctx.Now(), e.uid))
	}
}

func (f *fetch) done() bool { return f.answer.ID != "" || f.answer.Failed != "" }

// listResult is a survey for a list.
type listResult struct{ survey }

func (a *images) handleClientRequest(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.GetImages:
		if o := a.opts.Collect; o == nil {
			ctx.Reply(messages.ImagesListed{Failed: "this agent collects no images"})
		} else {
			ctx.Do(supervisors.Work{Name: "list of images", Timeout: surveyTimeout, Run: func(ctx context.Context) any {
				return listResult{o.survey(ctx)}
			}})
		}
	case listResult:
		ctx.Reply(a.list(m.survey, ctx.Now()))
	case messages.RemoveImage:
		switch {
		case a.opts.Collect == nil:
			ctx.Reply(messages.ImageRemoved{Kept: "this agent collects no images"})
		case a.collecting():
			ctx.Reply(messages.ImageRemoved{Busy: true})
		default:
			a.survey(ctx, &m)
		}
	case messages.FetchImage:
		a.fetch(ctx, m)
	}
}

// list returns the findings that a collection of all unused images would have.
func (a *images) list(s survey, now time.Time) messages.ImagesListed {
	if s.err != nil {
		return messages.ImagesListed{Failed: s.err.Error()}
	}
	c := decide(a.gc.times, s, a.heldImages(now), a.opts.Collect.Limits, true, now)
	var out messages.ImagesListed
	for _, img := range s.images {
		f, at := c.findings[img.GetId()], a.gc.times[img.GetId()]
		out.Images = append(out.Images, messages.NodeImage{
			ID: f.id, Tags: slices.Clone(img.GetRepoTags()), Digests: slices.Clone(img.GetRepoDigests()), Size: img.GetSize(),
			Pinned: img.GetPinned(), Since: at.firstSeen, Used: at.lastUsed, Users: f.users, Kept: f.keepReason,
		})
	}
	slices.SortFunc(out.Images, func(x, y messages.NodeImage) int { return strings.Compare(x.ID, y.ID) })
	return out
}

// removeOne removes the requested image if the survey permits it.
func (a *images) removeOne(ctx supervisors.Context, s survey, asked *messages.RemoveImage) {
	var answer messages.ImageRemoved
	switch {
	case s.err != nil:
		answer.Kept = s.err.Error()
	case !a.podsSynced(ctx.Now()):
		answer.Busy = true
	default:
		c := decide(a.gc.times, s, a.heldImages(ctx.Now()), a.opts.Collect.Limits, true, ctx.Now())
		f, there := c.findings[asked.ID]
		if there && (f.keepReason == "" || f.young && !asked.Collect) {
			c.request, c.queue = asked, []finding{f}
			a.gc.current = c
			a.removeNext(ctx)
			return
		}
		answer.Kept, answer.Users = f.keepReason, f.users
	}
	ctx.Reply(answer)
	a.resume(ctx)
}

// removedOne replies to RemoveImage after the removal.
func (a *images) removedOne(ctx supervisors.Context, c *collection) {
	answer := messages.ImageRemoved{Freed: uint64(max(c.freed, 0))}
	switch {
	case c.failed != nil:
		answer.Kept = c.failed.Error()
	case c.removed == 0:
		answer.Kept = "a pod is about to use it"
	}
	ctx.Reply(answer)
	a.resume(ctx)
}

// resume begins a collection that became due in the meantime.
func (a *images) resume(ctx supervisors.Context) {
	if a.gc.timer == nil || a.gc.all {
		a.collect(ctx)
	}
}

// fetch begins a pull with the node's own credentials, or replies with its progress. A fetch does not wait for the back-off of
// pods, and ends with the first failure.
func (a *images) fetch(ctx supervisors.Context, m messages.FetchImage) {
	now := ctx.Now()
	for id, f := range a.fetches {
		if now.Sub(f.requestedAt) > fetchKept && f.done() {
			f.release()
			delete(a.fetches, id)
		}
	}
	f, name, err := a.fetches[m.ID], imageName{}, error(nil)
	if f == nil {
		f = &fetch{image: m.Image}
		if name, err = parseName(m.Image); err == nil {
			f.release, err = a.places.Take(m.Client)
		}
		if err != nil {
			ctx.Reply(messages.ImageFetched{Failed: err.Error()})
			return
		}
		a.fetches[m.ID] = f
		a.carryOut(ctx, a.machine.hurry(now, name.runtime))
	}
	f.requestedAt = now
	if !f.done() {
		key := messages.ImageKey{UID: fetchUID + m.ID}
		a.handlePullImage(ctx, messages.PullImage{Key: key, Image: m.Image, Policy: v1.PullAlways})
	}
	ctx.Reply(f.answer)
}

// hurry ends the back-off of the pull without a pod's credentials.
func (b *machine) hurry(now time.Time, name string) []effect {
	if im := b.images[name]; im != nil {
		if p := im.pulls[""]; p != nil && p.phase == waiting {
			p.until = now
		}
	}
	return b.tick(now)
}
