package eviction

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// hour is a machine with 1000 MiB of memory and as much disk, where pods come, grow and go.
type hour struct {
	*node
	draw         *rapid.T
	rng          *rand.Rand
	images, dead uint64         // MiB of unused objects on the disk
	ends         map[string]int // ticks until an evicted pod has ended
	seq          int
	short        map[Signal]int // consecutive ticks without an action for it
	evicted      []string
	pressed      bool
}

const (
	machineMiB = 1000
	leastMiB   = 100 // both thresholds
	tick       = 10 * time.Second
)

func (h *hour) left(s Signal) int64 {
	used := uint64(0)
	if s == NodeFsAvailable {
		used = h.images + h.dead
	}
	for _, p := range h.pods {
		if s == NodeFsAvailable {
			used += *p.stats.EphemeralStorage.UsedBytes / mi
		} else {
			used += *p.stats.Memory.WorkingSetBytes / mi
		}
	}
	return max(machineMiB-int64(used), 0)
}

func (h *hour) measure() {
	h.m = Measurement{Readings: map[Signal]Reading{}}
	for _, s := range []Signal{MemoryAvailable, NodeFsAvailable} {
		h.m.Readings[s] = Reading{h.left(s) * mi, machineMiB * mi}
	}
}

// n returns a number from 0 to most, inclusive.
func (h *hour) n(most int) uint64 { return uint64(h.rng.IntN(most + 1)) }

// live makes pods come, grow, and go by themselves; the first is critical, and grows the most.
func (h *hour) live() {
	if len(h.pods) < 12 && h.n(2) == 0 {
		h.seq++
		p := of(fmt.Sprintf("p%d", h.seq), 0, 1+h.n(40), h.n(1)*50).on(1, 1, h.n(40))
		h.pods = append(h.pods, p)
	}
	for i, p := range h.pods {
		*p.stats.Memory.WorkingSetBytes += h.n(12) * mi
		more := h.n(12) * mi
		*p.stats.EphemeralStorage.UsedBytes += more
		*p.stats.VolumeStats[0].UsedBytes += more
		if i > 0 && h.ends[p.pod.Name] == 0 && h.n(30) == 0 {
			h.remove(p.pod.Name)
			break
		}
	}
	h.images += h.n(3)
	h.dead += h.n(1)
}

func (h *hour) remove(name string) {
	h.pods = slices.DeleteFunc(h.pods, func(c candidate) bool { return c.pod.Name == name })
	delete(h.failing, name)
}

// answer carries out the actor's requests.
func (h *hour) answer() {
	for _, s := range h.Take() {
		switch m := s.Msg.(type) {
		case messages.ReclaimImages:
			h.images = 0
			h.measure()
			h.Send(messages.Images, messages.ImagesReclaimed{})
		case messages.ReclaimContainers:
			h.dead = 0
			h.measure()
			h.Send(messages.Runtime, messages.ContainersReclaimed{})
		case messages.EvictPod:
			h.evict(m)
		case messages.NodePressureObserved:
			h.pressed = slices.ContainsFunc(m.Pressures, func(p messages.Pressure) bool { return p.Under })
		}
	}
}

func (h *hour) evict(m messages.EvictPod) {
	switch {
	case h.left(MemoryAvailable) > leastMiB && h.left(NodeFsAvailable) > leastMiB: // a percentage is rounded
		h.draw.Fatalf("%s is evicted, and nothing is short: %s", m.UID, m.Failure.Message)
	case len(h.ends) > 0:
		h.draw.Fatalf("%s is evicted while %v end", m.UID, h.ends)
	case m.UID == "critical":
		h.draw.Fatalf("a critical pod is evicted: %s", m.Failure.Message)
	}
	h.evicted = append(h.evicted, m.UID)
	h.failing[m.UID], h.ends[m.UID] = true, 1+int(h.n(2))
	h.short = map[Signal]int{}
	h.publish()
}

// pass is ten seconds: evicted pods end, and the actor measures.
func (h *hour) pass() {
	for name, left := range h.ends {
		if h.ends[name] = left - 1; left > 1 {
			continue
		}
		delete(h.ends, name)
		h.remove(name)
		h.measure()
		h.publish()
		if i := slices.IndexFunc(h.Work, isWait); i >= 0 {
			w := h.Work[i]
			h.Work = slices.Delete(h.Work, i, i+1)
			h.RunOne(w)
		}
	}
	h.measure()
	h.publish()
	h.Advance(tick)
	for range 20 { // an answer leads to a measurement, and that to the next step
		h.settle()
		h.answer()
	}
	for _, s := range []Signal{MemoryAvailable, NodeFsAvailable} {
		if h.short[s]++; h.left(s) >= leastMiB || len(h.ends) > 0 || len(h.pods) < 2 {
			h.short[s] = 0
		}
		if h.short[s] > 3 {
			h.draw.Fatalf("%s is %d, and nothing is done for half a minute: %d pods, work %v", s, h.left(s), len(h.pods), h.Work)
		}
	}
}

func isWait(w supervisors.Work) bool { return w.Name == "await the end of evicted pods" }

// settle does all work except the wait for leaving pods and the wait for a shortage, which ends by itself.
func (h *hour) settle() {
	for i := 0; i < len(h.Work); {
		if w := h.Work[i]; isWait(w) {
			i++
		} else {
			h.Work = slices.Delete(h.Work, i, i+1)
			h.RunOne(w)
		}
	}
}

// TestAnHourUnderPressure: pods come, grow and go for an hour. Every shortage of more than a moment causes an action. No pod is
// evicted without need, no two at a time, and no critical one. Once the pods are gone, so is the pressure.
func TestAnHourUnderPressure(t *testing.T) {
	hours, evictions := 0, 0
	rapid.Check(t, func(draw *rapid.T) {
		limits := Limits{Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}}
		h := &hour{node: newNode(t, limits, of("critical", 2_000_001_000, 100, 0).on(1, 1, 30)), draw: draw,
			rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(draw, "seed"), 0)), ends: map[string]int{}, short: map[Signal]int{}}
		h.opts.Transition = time.Minute
		h.measure()
		h.publish()
		h.start()
		for range time.Hour / tick {
			h.live()
			h.pass()
			h.bound(500)
		}
		hours, evictions = hours+1, evictions+len(h.evicted)
		h.images, h.dead, h.pods = 0, 0, h.pods[:1]
		clear(h.ends)
		clear(h.failing)
		for range 2 * time.Minute / tick {
			h.bound(100)
			h.pass()
		}
		if h.pressed {
			draw.Fatal("nothing is short, and the node is under pressure")
		}
	})
	t.Logf("%d hours, %d evictions", hours, evictions)
}

// bound keeps the critical pod within the machine's means: it cannot be evicted.
func (h *hour) bound(most uint64) {
	c := h.pods[0].stats
	*c.EphemeralStorage.UsedBytes = min(*c.EphemeralStorage.UsedBytes, most*mi)
	*c.Memory.WorkingSetBytes = min(*c.Memory.WorkingSetBytes, most*mi)
	*c.VolumeStats[0].UsedBytes = min(*c.VolumeStats[0].UsedBytes, most*mi)
}
