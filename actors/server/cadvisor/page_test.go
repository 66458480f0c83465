package cadvisor

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// The page draws the figures, and also has them as text.
func TestPage(t *testing.T) {
	f := &fake{image: `evil"><script>alert(1)</script>`, lacks: []string{"no <b>disks</b>"}}
	h := newHandler(f)
	get(t, h, "/containers/")
	f.at(30)
	root := get(t, h, "/containers/").Body.String()
	for _, want := range []string{
		`<meter aria-label="Memory (working set)" min="0" max="12582912" value="3145728">3.0 MiB of 12.0 MiB (25 %)</meter>`,
		`aria-label="File system /dev/a"`, `40 B of 100 B (40 %)`,
		`total <data class="now" value="0.5">0.5 cores</data>`, `kernel <data class="now" value="0.2">0.2 cores</data>`,
		`working set <data class="now" value="3145728">3.0 MiB</data>`,
		`received <data class="now" value="2048">2.0 KiB/s</data>`,
		`aria-label="CPU: total 0.5 cores, user 0.3 cores, kernel 0.2 cores"`,
		// Half a core is at the top of an axis of 0.6, 30 s before the end of 120 s at the left.
		`<path class="curve c1" d="M463 `, `L592 `,
		`<a href="/containers/kubepods">kubepods</a></th><td>0.5 cores</td><td>3.0 MiB</td>`,
		`<a href="/containers/kubepods/burstable/poduid1">default/web</a>`,
		`<dt>CPUs</dt><dd>4</dd>`, `no &lt;b&gt;disks&lt;/b&gt;`,
	} {
		if !strings.Contains(root, want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(root)
	}
	c := get(t, h, "/containers"+one).Body.String()
	if strings.Contains(c, "<script>") || !strings.Contains(c, "alert(1)") || !strings.Contains(c, `<a href="/containers/">node</a> › <a href="/containers/kubepods">`) {
		t.Errorf("%s", c)
	}
	if strings.Contains(c, `id="network"`) {
		t.Error("a chart of nothing")
	}
	// No content that the content policy forbids, and no external content.
	for _, text := range []string{root, c} {
		if found := regexp.MustCompile(` style=|<style| on[a-z]+=|https?://`).FindString(text); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
}

// The history is limited in size and time.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := &fake{}, &history{}
		read := func() map[string]*model.ContainerInfo {
			all, _ := f.Containers(t.Context(), 0)
			return h.add(all)
		}
		read()
		if got := read()[one].Stats; len(got) != 1 {
			t.Errorf("read once, kept %d times", len(got))
		}
		for second := range 200 {
			f.at(second)
			read()
		}
		got := read()[one].Stats
		if len(got) != int(keep.Seconds())+1 || got[0].Timestamp != begin.Add(199*time.Second-keep) || got[len(got)-1].Timestamp != begin.Add(199*time.Second) {
			t.Errorf("%d samples are kept, from %s", len(got), got[0].Timestamp)
		}
		many := map[string]*model.ContainerInfo{}
		for second := range 5 {
			for i := range maxSamples {
				s := &model.ContainerStats{Timestamp: begin.Add(time.Duration(second) * time.Second)}
				many["/"+string(rune('!'+i))] = &model.ContainerInfo{Stats: []*model.ContainerStats{s}}
			}
			h.add(many)
		}
		h.mu.Lock()
		if n := len(h.samples["/a"]); n != 2 || len(h.samples) != len(many) {
			t.Errorf("%d samples of each of %d", n, len(h.samples))
		}
		h.mu.Unlock()
		time.Sleep(keep + time.Second)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.samples != nil {
			t.Error("nobody reads, and samples are kept")
		}
	})
}

// A client of v2.1 gets the requested number of samples.
func TestSamples(t *testing.T) {
	f := &fake{}
	h := newHandler(f)
	for second := range 4 {
		f.at(10 * second)
		get(t, h, "/containers/")
	}
	var all map[string]struct {
		Stats []struct {
			Timestamp  time.Time
			CPU        *model.CpuStats
			CPUInst    *model.CpuInstStats `json:"cpu_inst"`
			Memory     *model.MemoryStats
			Filesystem json.RawMessage
		}
	}
	for count, want := range map[string]int{"": 4, "?count=-1": 4, "?count=2": 2, "?count=0": 0} {
		if err := json.Unmarshal(get(t, h, "/api/v2.1/stats"+one+count).Body.Bytes(), &all); err != nil {
			t.Fatal(err)
		}
		if got := all[one].Stats; len(got) != want || want > 0 && got[want-1].Timestamp != begin.Add(30*time.Second) {
			t.Errorf("%q: %+v", count, got)
		}
		if got := all[one].Stats; want == 4 && (got[0].CPUInst != nil || got[3].CPUInst == nil || got[3].CPUInst.Usage.Total != 5e8 || got[3].Memory.WorkingSet != 3<<20 || got[3].Filesystem != nil) {
			t.Errorf("%+v", got)
		}
	}
}

// A reset counter leaves a gap; unknown values draw nothing.
func TestChart(t *testing.T) {
	sample := func(second int, total uint64) *model.ContainerStats {
		return &model.ContainerStats{
			Timestamp: begin.Add(time.Duration(second) * time.Second), Cpu: &model.CpuStats{Usage: model.CpuUsage{Total: total * 1e9}},
		}
	}
	k := kinds[0]
	c := k.chartOf([]*model.ContainerStats{sample(0, 0), sample(10, 10), sample(20, 20), sample(30, 5), sample(40, 7), sample(50, 27)})
	if got, want := c.Curves[0].Path, "M420 78L463 78M549 134L592 8"; got != want || c.Curves[0].Last != "2 cores" || c.Times[3].Values[0] != unknown {
		t.Errorf("%s, wanted %s; %+v", got, want, c)
	}
	if c := kinds[2].chartOf([]*model.ContainerStats{sample(0, 0)}); c != nil {
		t.Errorf("%+v", c)
	}
	if c := k.chartOf([]*model.ContainerStats{sample(0, 0)}); c == nil || c.Curves[0].Path != "" || c.Curves[0].Value != "" {
		t.Errorf("of one sample: %+v", c)
	}
	for v, want := range map[float64]float64{0: 1, 0.05: 0.06, 0.11: 0.2, 1: 1, 3: 4, 7: 8, 9: 10, 130: 200} {
		if got := ceiling(v, false); math.Abs(got-want) > 1e-9 {
			t.Errorf("an axis for %v ends at %v", v, got)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 0.12345: "0.123", 0.000004: "0", 12.3456: "12.3", 1234.5: "1234"} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, wanted %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1 << 62: "4.0 EiB"} {
		if got := inBytes(v); got != want {
			t.Errorf("%v is %s, wanted %s", v, got, want)
		}
	}
}
