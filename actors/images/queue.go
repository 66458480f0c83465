package images

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/images/lanes"
	"github.com/playlet-dev/playlet/messages"
)

// places is the last place in the queue that is reported by number.
const places = 10

// candidate is a queued pull with its needs.
type candidate struct {
	im    *image
	pull  *pull
	needs []*need
}

// lines returns the queued pulls by tenant and registry, each line in order. A pull belongs to the tenant of its first need.
func (b *machine) lines(now time.Time) map[lanes.Line][]candidate {
	lines := map[lanes.Line][]candidate{}
	for _, im := range b.images {
		for _, n := range im.needs {
			b.queue.Need(now, lanes.Line{Tenant: n.tenant(), Registry: im.registry})
		}
		for id, p := range im.pulls {
			if p.phase != queued {
				continue
			}
			needs := im.pulling(id)
			if len(needs) == 0 { // the pull has lost its last need
				p.phase = idle
				continue
			}
			p.line = lanes.Line{Tenant: needs[0].tenant(), Registry: im.registry}
			lines[p.line] = append(lines[p.line], candidate{im, p, needs})
		}
	}
	for _, line := range lines {
		slices.SortFunc(line, func(x, y candidate) int {
			return cmp.Or(cmp.Compare(x.needs[0].priority, y.needs[0].priority),
				cmp.Compare(x.needs[0].arrived, y.needs[0].arrived))
		})
	}
	return lines
}

// dispatch starts queued pulls while slots are available, and reports to the others their places.
func (b *machine) dispatch(now time.Time) {
	lines := b.lines(now)
	b.queue.Prune(now)
	for {
		line, found := b.queue.Next(now, slices.SortedFunc(maps.Keys(lines), compareLines))
		if !found {
			if len(lines) > 0 && b.queue.TokenAt().IsZero() && b.lend(now) {
				continue
			}
			break
		}
		c := lines[line][0]
		if lines[line] = lines[line][1:]; len(lines[line]) == 0 {
			delete(lines, line)
		}
		c.pull.phase, c.pull.since = busy, now
		b.out = append(b.out, startPull{c.im.name, c.pull.credentials, c.needs[0].priority})
	}
	b.reportPositions(lines)
}

func compareLines(x, y lanes.Line) int {
	return cmp.Or(cmp.Compare(x.Registry, y.Registry), cmp.Compare(x.Tenant, y.Tenant))
}

// lend takes the slot of the oldest pull that has exceeded its limit. The pull continues, since it may only be slow. At most as
// many pulls as there are slots continue without one.
func (b *machine) lend(now time.Time) bool {
	var oldest *pull
	for p, at := range b.lends() {
		if !at.After(now) && (oldest == nil || p.since.Before(oldest.since)) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	if oldest.slot == slotHeld {
		b.queue.Lend(oldest.line)
		oldest.slot = slotLent
	}
	if now.Sub(oldest.since) >= slotLimit {
		b.queue.EndLent(oldest.line)
		oldest.slot = slotGone
	}
	return true
}

// lends yields the pulls that must give their slots away while others wait, and the time at which they do.
func (b *machine) lends() iter.Seq2[*pull, time.Time] {
	limit := slotLimit
	for _, im := range b.images {
		for _, p := range im.pulls {
			if p.phase == queued && b.queue.Idle(p.line.Tenant) {
				limit = newcomerLimit
			}
		}
	}
	full := b.lent() >= b.queue.Limit()
	return func(yield func(*pull, time.Time) bool) {
		for _, im := range b.images {
			for _, p := range im.pulls {
				at := p.since.Add(limit)
				if p.slot == slotLent {
					at = p.since.Add(slotLimit)
				}
				if p.phase == busy && p.slot != slotGone && (p.slot == slotLent || !full) && !yield(p, at) {
					return
				}
			}
		}
	}
}

// lent counts the pulls that continue without slots.
func (b *machine) lent() (n int) {
	for _, im := range b.images {
		for _, p := range im.pulls {
			if p.slot != slotHeld {
				n++
			}
		}
	}
	return n
}

// reportPositions sends each need its place in the queue, or the pull in progress, if that has changed.
func (b *machine) reportPositions(lines map[lanes.Line][]candidate) {
	for _, line := range slices.SortedFunc(maps.Keys(lines), compareLines) {
		registry := line.Registry
		for i, c := range lines[line] {
			where := fmt.Sprintf("behind more than %d others", places)
			if i < places {
				where = ordinal(i + 1)
			}
			for _, n := range c.needs {
				b.await(n, messages.Reason{
					Code: messages.ReasonPullQueued, Since: c.pull.since,
					Cause:   messages.Cause{Code: messages.CauseQueued, Name: registry, Detail: where},
					Message: fmt.Sprintf("the image %q is %s in the queue of the registry %s", n.image, where, registry),
				})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.images)) {
		im := b.images[name]
		for id, p := range im.pulls {
			if p.phase != busy {
				continue
			}
			for _, n := range im.pulling(id) {
				b.await(n, messages.Reason{
					Code: messages.ReasonPulling, Since: p.since,
					Cause:   messages.Cause{Code: messages.CausePulling, Name: im.registry},
					Message: fmt.Sprintf("the image %q is being pulled from the registry %s", n.image, im.registry),
				})
			}
		}
	}
}

func (b *machine) await(n *need, r messages.Reason) {
	text := r.String()
	if n.awaits == text {
		return
	}
	n.awaits = text
	m := messages.ImageAwaited{Key: n.key, Image: n.image, Reason: r}
	if r.Code == messages.ReasonPulling {
		m.Again, n.pulling = n.pulling.Equal(r.Since), r.Since
	}
	b.send(n, m)
}

func ordinal(n int) string {
	suffix := "th"
	if n < 11 || n > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
