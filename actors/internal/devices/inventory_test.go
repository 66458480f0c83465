package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/devices/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/topology"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const gpu = "example.com/gpu"

// inventoryOf has devices of one resource: "a", or "!a" for one that is not healthy.
func inventoryOf(ids ...string) *inventory {
	b := newInventory(topology.MaskOf(0, 1, 5))
	b.resources[gpu] = &resourceState{plugin: &plugin{resource: gpu}}
	b.tell(gpu, list(ids...))
	return b
}

func (b *inventory) tell(name string, list []*pluginapi.Device) []string {
	all, usable := read(list)
	return b.observe(name, all, usable)
}

func list(ids ...string) (out []*pluginapi.Device) {
	for _, id := range ids {
		d := &pluginapi.Device{ID: strings.TrimPrefix(id, "!"), Health: pluginapi.Healthy}
		if d.GetID() != id {
			d.Health = pluginapi.Unhealthy
		}
		out = append(out, d)
	}
	return out
}

var answered = &pluginapi.ContainerAllocateResponse{}

func (b *inventory) give(uid, container string, ids ...string) {
	b.reserve(request{holder: holder{uid, container}, resource: gpu}, ids, answered)
}

// needs and pick choose the devices of a request, or refuse it with the kubelet's error.
func TestWhichDevicesARequestGets(t *testing.T) {
	late := noon.Add(time.Hour)
	for name, c := range map[string]struct {
		has       []string // of the plugin
		others    []string // that another pod has
		own       []string // that the container has
		reuse     []string
		preferred []string
		gone      time.Time
		unlisted  bool
		count     int
		want      string // the devices, or the error
	}{
		"any that is free":           {has: []string{"b", "a"}, count: 1, want: "a"},
		"not another's":              {has: []string{"a", "b"}, others: []string{"a"}, count: 1, want: "b"},
		"not an unhealthy one":       {has: []string{"!a", "b"}, count: 1, want: "b"},
		"what the plugin prefers":    {has: []string{"a", "b", "c"}, preferred: []string{"c", "b"}, count: 2, want: "b c"},
		"no more than it asks for":   {has: []string{"a", "b", "c"}, preferred: []string{"c", "b", "a"}, count: 1, want: "c"},
		"not what is not free":       {has: []string{"a", "b"}, others: []string{"b"}, preferred: []string{"b", "x"}, count: 1, want: "a"},
		"of an init container":       {has: []string{"a", "b"}, others: []string{"b"}, reuse: []string{"b"}, count: 1, want: "b"},
		"of it, and another":         {has: []string{"a", "b", "c"}, others: []string{"b"}, reuse: []string{"b"}, count: 2, want: "a b"},
		"less than the init's":       {has: []string{"a", "b"}, others: []string{"a", "b"}, reuse: []string{"a", "b"}, count: 1, want: "a"},
		"what it has":                {has: []string{"a", "b"}, own: []string{"b"}, count: 1, want: "met"},
		"too few":                    {has: []string{"a", "b"}, others: []string{"a"}, count: 2, want: "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"},
		"none is healthy":            {has: []string{"!a"}, count: 1, want: "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"},
		"not listed yet":             {has: []string{"a"}, unlisted: true, count: 1, want: "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"},
		"gone for good":              {has: []string{"a"}, gone: noon, count: 1, want: "cannot allocate unregistered device example.com/gpu"},
		"its own is not healthy":     {has: []string{"!a", "b"}, own: []string{"a"}, count: 1, want: "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"},
		"another number than it has": {has: []string{"a", "b"}, own: []string{"a"}, count: 2, want: `pod "u" container "c" changed request for resource "example.com/gpu" from 1 to 2`},
	} {
		b := inventoryOf(c.has...)
		k := b.resources[gpu]
		k.gone, k.listed = c.gone, !c.unlisted && c.gone.IsZero()
		if c.others != nil {
			b.give("other", "c", c.others...)
		}
		if c.own != nil {
			b.give("u", "c", c.own...)
		}
		n, met, err := b.needs(request{holder{"u", "c"}, gpu, c.count, c.reuse, noHint}, late)
		got := strings.Join(n.pick(c.preferred), " ")
		switch {
		case err != nil:
			got = err.Error()
		case met:
			got = "met"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// In any sequence of events, no device belongs to two pods, every allocation is complete, and the checkpoint restores the
// inventory.
func TestNoDeviceIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := inventoryOf("a", "b", "c", "d")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			uid := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "uid")
			switch rapid.SampledFrom([]string{"ask", "ask", "end", "list"}).Draw(t, "what") {
			case "ask":
				r := request{holder: holder{uid, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "c")}, resource: gpu,
					count: rapid.IntRange(1, 3).Draw(t, "n")}
				free := b.free(gpu)
				n, met, err := b.needs(r, noon)
				if err != nil || met {
					continue
				}
				ids := n.pick(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})).Draw(t, "preferred"))
				if len(ids) != r.count || slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(free, id) }) {
					t.Fatalf("of %v: %v for %d", free, ids, r.count)
				}
				b.reserve(r, ids, answered)
			case "end":
				b.retain(func(has string) bool { return has != uid })
			case "list":
				b.tell(gpu, list(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "!b", "c", "d"}), rapid.ID).Draw(t, "list")...))
			}
			seen := map[string]bool{}
			for h, has := range b.given {
				for _, id := range has[gpu].ids() {
					if seen[id] {
						t.Fatalf("%s is given twice, to %v too", id, h)
					}
					seen[id] = true
				}
			}
			text, err := b.state(noon).encode()
			if err != nil {
				t.Fatal(err)
			}
			data, err := checkpoint.Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			again := newInventory(topology.MaskOf(0, 1, 5))
			if err := again.restore(data, noon); err != nil || fmt.Sprint(len(again.given)) != fmt.Sprint(len(b.given)) {
				t.Fatalf("%v, %v", again.given, err)
			}
			for h, has := range b.given {
				if !slices.Equal(again.given[h][gpu].ids(), has[gpu].ids()) {
					t.Fatalf("%v has %v, and had %v", h, again.given[h][gpu].ids(), has[gpu].ids())
				}
			}
		}
	})
}

// Unhealthy devices, and devices of an absent plugin, are capacity but not allocatable; after five minutes without the
// plugin there are none.
func TestCapacity(t *testing.T) {
	b := inventoryOf("a", "!b", "c")
	expect := func(what string, at time.Time, capacity, allocatable int64) {
		t.Helper()
		all, free := b.capacity(at)
		if c, f := all[gpu], free[gpu]; c.Value() != capacity || f.Value() != allocatable || len(all) != 1 {
			t.Errorf("%s: %s there, %s allocatable", what, c.String(), f.String())
		}
	}
	expect("listed", noon, 3, 2)
	k := b.resources[gpu]
	k.plugin, k.listed, k.gone = nil, false, noon
	expect("gone", noon.Add(stopGrace), 3, 0)
	expect("gone for good", noon.Add(stopGrace+time.Second), 0, 0)
	if b.isDevice(gpu, noon.Add(stopGrace+time.Second)) || !b.isDevice(gpu, noon) {
		t.Error("it is a device for as long as its plugin is waited for")
	}
	b.give("u", "c", "a")
	if !b.isDevice(gpu, noon.Add(time.Hour)) {
		t.Error("what a container has is a device")
	}
	again := newInventory(topology.MaskOf(0, 1, 5))
	text, err := b.state(noon).encode()
	if err != nil {
		t.Fatal(err)
	}
	data, err := checkpoint.Decode(text)
	if err != nil || again.restore(data, noon) != nil {
		t.Fatal(err)
	}
	b = again
	expect("after a restart", noon, 0, 0)
}

// An unchanged list has no effect; before a plugin's first list none of its devices is allocatable.
func TestListsThatSayNothingNew(t *testing.T) {
	k := inventoryOf("a", "!b").resources[gpu]
	for _, c := range []struct {
		list []string
		want bool
	}{{[]string{"!b", "a"}, true}, {[]string{"a", "b"}, false}, {[]string{"a"}, false}} {
		if all, _ := read(list(c.list...)); k.same(all) != c.want {
			t.Errorf("%v: %v", c.list, !c.want)
		}
	}
	if all, _ := read(list("a", "!b")); len(k.healthy()) != 1 {
		t.Error("it cannot be had")
	} else if k.listed = false; k.same(all) || len(k.healthy()) > 0 {
		t.Error("the first list of a plugin is new")
	}
}

// observe returns exactly the pods with a device that changed its health.
func TestWhoHearsOfHealth(t *testing.T) {
	b := inventoryOf("a", "b")
	b.give("u", "c", "a")
	b.give("v", "c", "b")
	for _, c := range []struct{ list, want []string }{
		{[]string{"a", "b"}, nil}, {[]string{"!a", "b"}, []string{"u"}}, {[]string{"!a"}, nil},
		{[]string{"a", "b"}, []string{"u", "v"}},
	} {
		if got := b.tell(gpu, list(c.list...)); !slices.Equal(got, c.want) {
			t.Errorf("of %v: %v, want %v", c.list, got, c.want)
		}
	}
}
