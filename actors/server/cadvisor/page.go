package cadvisor

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/playlet-dev/playlet/cri"
)

// pageAge is the maximum age of the figures on a page; the page reloads as often.
const pageAge = 5 * time.Second

//go:embed assets/page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// view is the content of a page.
type view struct {
	Node, Title, Path, Time string
	Refresh                 int64 // ms
	Above                   []link
	Charts                  []*chart
	Bars                    []bar
	Facts                   [][2]string
	Lists                   []listing
	Lacks                   []string
}

// link is a link to a cgroup.
type link struct{ Href, Name string }

// bar is the usage of a limited resource.
type bar struct{ Name, Says, Value, Max string }

// listing lists cgroups with their usage.
type listing struct {
	Title string
	Rows  []row
}

type row struct {
	link
	CPU, Memory string
}

func (h *handler) page(w http.ResponseWriter, r *http.Request) error {
	t, lacks, err := h.read(r, pageAge)
	if err != nil {
		return err
	}
	info, err := t.find(name(r))
	if err != nil {
		return err
	}
	v := &view{
		Node: h.conf.NodeName, Title: title(info), Path: info.Name, Refresh: pageAge.Milliseconds(), Facts: facts(info),
		Lacks: lacks,
	}
	for at := info.Name; at != "/"; {
		at = t.parent(at)
		v.Above = append(v.Above, t.link(at))
	}
	slices.Reverse(v.Above)
	if n := len(info.Stats); n > 0 {
		last := info.Stats[n-1]
		v.Time = last.Timestamp.Format(time.TimeOnly)
		for _, k := range kinds {
			if c := k.chartOf(info.Stats); c != nil {
				v.Charts = append(v.Charts, c)
			}
		}
		v.Bars = bars(info, last)
	}
	v.Lists = []listing{{"Inside", t.rows(t.children(info.Name))}}
	if info.Name == "/" {
		v.Lists = append(v.Lists, listing{"Pods", t.rows(t.pods())})
		if m, err := h.conf.Figures.Machine(r.Context()); err == nil {
			v.Facts = append(v.Facts, [2]string{"CPUs", strconv.Itoa(m.NumCores)}, [2]string{"Machine ID", m.MachineID})
		}
	}
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body.Bytes()) // fails if the client has left
	return nil
}

// pods returns the names of the cgroups of pods, and of containers whose pod has none.
func (t tree) pods() []string {
	return t.names(func(name string, info *model.ContainerInfo) bool {
		return info.Spec.Labels[cri.LabelPodName] != "" && t[t.parent(name)].Spec.Labels[cri.LabelPodName] == ""
	})
}

func (t tree) link(name string) link {
	return link{(&url.URL{Path: "/containers" + name}).String(), title(t[name])}
}

// rows returns the rows of a listing, by title.
func (t tree) rows(names []string) []row {
	out := make([]row, 0, len(names))
	for _, name := range names {
		r := row{link: t.link(name), CPU: unknown, Memory: unknown}
		if samples := t[name].Stats; len(samples) > 0 {
			k := kinds[0]
			values, _ := k.values(newest(samples, 2))
			r.CPU = k.says(values[0][len(values[0])-1])
			if m := samples[len(samples)-1].Memory; m != nil {
				r.Memory = inBytes(float64(m.WorkingSet))
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b row) int { return strings.Compare(a.Name+a.Href, b.Name+b.Href) })
	return out
}

// noLimit is more than any real limit: the kernel uses such numbers for no limit.
const noLimit = 1 << 60

// bars returns the usage of limited resources.
func bars(info *model.ContainerInfo, s *model.ContainerStats) []bar {
	var out []bar
	add := func(name string, used, most uint64) {
		if most == 0 || most > noLimit {
			return
		}
		share := 100 * float64(used) / float64(most)
		out = append(out, bar{
			name, fmt.Sprintf("%s of %s (%.0f %%)", inBytes(float64(used)), inBytes(float64(most)), share),
			strconv.FormatUint(used, 10), strconv.FormatUint(most, 10),
		})
	}
	if s.Memory != nil {
		add("Memory (working set)", s.Memory.WorkingSet, info.Spec.Memory.Limit)
		add("Swap", s.Memory.Swap, info.Spec.Memory.SwapLimit)
	}
	for _, f := range slices.SortedFunc(slices.Values(s.Filesystem), byDevice) {
		add("File system "+f.Device, f.Usage, f.Limit)
	}
	return out
}

func byDevice(a, b model.FsStats) int { return strings.Compare(a.Device, b.Device) }

// facts returns properties that rarely change.
func facts(info *model.ContainerInfo) [][2]string {
	var out [][2]string
	add := func(name, value string) {
		if value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	spec := info.Spec
	add("Cgroup", info.Name)
	add("ID", strings.Join(info.Aliases, " "))
	add("Image", spec.Image)
	for name, at := range map[string]time.Time{"Made": spec.CreationTime, "Started": spec.StartTime} {
		if !at.IsZero() {
			add(name, at.Format(time.DateTime))
		}
	}
	if c := spec.Cpu; spec.HasCpu {
		add("CPU shares", strconv.FormatUint(c.Limit, 10))
		if c.Quota > 0 && c.Quota < math.MaxInt64 && c.Period > 0 {
			add("CPU limit", cores(float64(c.Quota)/float64(c.Period)))
		}
		add("CPUs to run on", c.Mask)
	}
	slices.SortStableFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out
}
