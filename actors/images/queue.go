package images

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// places is how far from the front a need is told its place; beyond it only that it is further behind.
const places = 10

// candidate is a pull that waits for its turn.
type candidate struct {
	im    *image
	pull  *pull
	needs []*need
}

// lines are the queued pulls by registry, each line in order.
func (b *machine) lines(now time.Time) map[string][]candidate {
	lines := map[string][]candidate{}
	for _, im := range b.images {
		b.queue.Need(now, im.registry)
		for id, p := range im.pulls {
			if p.phase != queued {
				continue
			}
			needs := im.pulling(id)
			if len(needs) == 0 { // nobody waits for it any more
				p.phase = idle
				continue
			}
			lines[im.registry] = append(lines[im.registry], candidate{im, p, needs})
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

// dispatch starts queued pulls while they may, and tells those who wait where they stand.
func (b *machine) dispatch(now time.Time) {
	lines := b.lines(now)
	b.queue.Prune(now)
	for {
		registry := b.queue.Next(now, slices.Sorted(maps.Keys(lines)))
		if registry == "" {
			if len(lines) > 0 && b.queue.TokenAt().IsZero() && b.lend(now) {
				continue
			}
			break
		}
		c := lines[registry][0]
		if lines[registry] = lines[registry][1:]; len(lines[registry]) == 0 {
			delete(lines, registry)
		}
		c.pull.phase, c.pull.since = busy, now
		b.out = append(b.out, startPull{c.im.name, c.pull.keys, c.needs[0].priority})
	}
	b.tellPlaces(lines)
}

// lend takes the slot of the oldest pull that has had one for slotLimit. The pull goes on: it may be slow, or never end.
// As many pulls as there are slots go on so.
func (b *machine) lend(now time.Time) bool {
	var of *image
	var oldest *pull
	for _, im := range b.images {
		for _, p := range im.pulls {
			if p.phase == busy && !p.lent && now.Sub(p.since) >= slotLimit && (oldest == nil || p.since.Before(oldest.since)) {
				of, oldest = im, p
			}
		}
	}
	if oldest == nil || b.lent() >= b.queue.Limit() {
		return false
	}
	oldest.lent = true
	b.queue.End(of.registry)
	return true
}

// lent counts the pulls that go on without their slots.
func (b *machine) lent() (n int) {
	for _, im := range b.images {
		for _, p := range im.pulls {
			if p.lent {
				n++
			}
		}
	}
	return n
}

// tellPlaces tells each need what it waits for, when that is news.
func (b *machine) tellPlaces(lines map[string][]candidate) {
	for _, registry := range slices.Sorted(maps.Keys(lines)) {
		for i, c := range lines[registry] {
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
	b.tell(n, m)
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
