package cadvisor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// curve is one line of a chart. Its value is NaN if unknown.
type curve struct {
	name  string
	value func(s *model.ContainerStats) float64
}

// kind is a chart available for every cgroup.
type kind struct {
	id, title string
	unit      func(v float64) string
	bytes     bool // the axis ends at a power of two
	grows     bool // the values count up; the chart shows the rate per second
	curves    []curve
}

// draw returns a curve of a part of a sample, which may be missing.
func draw[T any](name string, part func(s *model.ContainerStats) *T, value func(of *T) float64) curve {
	return curve{name, func(s *model.ContainerStats) float64 {
		if p := part(s); p != nil {
			return value(p)
		}
		return math.NaN()
	}}
}

func cpuOf(s *model.ContainerStats) *model.CpuStats           { return s.Cpu }
func memoryOf(s *model.ContainerStats) *model.MemoryStats     { return s.Memory }
func networkOf(s *model.ContainerStats) *model.NetworkStats   { return s.Network }
func disksOf(s *model.ContainerStats) *model.DiskIoStats      { return s.DiskIo }
func processesOf(s *model.ContainerStats) *model.ProcessStats { return s.Processes }

// transferred returns a function that sums the bytes read from, or written to, disks.
func transferred(direction string) func(d *model.DiskIoStats) float64 {
	return func(d *model.DiskIoStats) float64 {
		sum := 0.0
		for _, disk := range d.IoServiceBytes {
			sum += float64(disk.Stats[direction])
		}
		return sum
	}
}

// passed returns a function that sums the bytes received or sent by the interfaces.
func passed(value func(i *model.InterfaceStats) uint64) func(n *model.NetworkStats) float64 {
	return func(n *model.NetworkStats) float64 {
		sum := 0.0
		for i := range n.Interfaces {
			sum += float64(value(&n.Interfaces[i]))
		}
		return sum
	}
}

// waited is the share of the time spent waiting. A total of 0 may mean that the kernel does not report it.
func waited(p model.PSIStats) float64 {
	if p.Some.Total == 0 {
		return math.NaN()
	}
	return p.Some.Avg10
}

// threads returns NaN for the root, whose threads are unknown; other cgroups have some.
func threads(p *model.ProcessStats) float64 {
	if p.ThreadsCurrent == 0 {
		return math.NaN()
	}
	return float64(p.ThreadsCurrent)
}

// kinds are the charts, in the order of the page.
var kinds = []kind{
	{"cpu", "CPU", cores, false, true, []curve{
		draw("total", cpuOf, func(c *model.CpuStats) float64 { return float64(c.Usage.Total) / 1e9 }),
		draw("user", cpuOf, func(c *model.CpuStats) float64 { return float64(c.Usage.User) / 1e9 }),
		draw("kernel", cpuOf, func(c *model.CpuStats) float64 { return float64(c.Usage.System) / 1e9 }),
	}},
	{"memory", "Memory", inBytes, true, false, []curve{
		draw("usage", memoryOf, func(m *model.MemoryStats) float64 { return float64(m.Usage) }),
		draw("working set", memoryOf, func(m *model.MemoryStats) float64 { return float64(m.WorkingSet) }),
		draw("anonymous", memoryOf, func(m *model.MemoryStats) float64 { return float64(m.RSS) }),
	}},
	{"network", "Network", perSecond, true, true, []curve{
		draw("received", networkOf, passed(func(i *model.InterfaceStats) uint64 { return i.RxBytes })),
		draw("sent", networkOf, passed(func(i *model.InterfaceStats) uint64 { return i.TxBytes })),
	}},
	{"disks", "Disks", perSecond, true, true, []curve{
		draw("read", disksOf, transferred("Read")), draw("written", disksOf, transferred("Write")),
	}},
	{"processes", "Processes", number, false, false, []curve{
		draw("processes", processesOf, func(p *model.ProcessStats) float64 { return float64(p.ProcessCount) }),
		draw("threads", processesOf, threads),
	}},
	{"pressure", "Time spent waiting (PSI, average of 10 s)", percent, false, false, []curve{
		draw("for CPU", cpuOf, func(c *model.CpuStats) float64 { return waited(c.PSI) }),
		draw("for memory", memoryOf, func(m *model.MemoryStats) float64 { return waited(m.PSI) }),
		draw("for disks", disksOf, func(d *model.DiskIoStats) float64 { return waited(d.PSI) }),
	}},
}

// The size of a chart, and the area of the curves.
const (
	chartWidth, chartHeight = 600, 170
	plotLeft, plotTop       = 76, 8
	plotWidth, plotHeight   = chartWidth - plotLeft - 8, chartHeight - plotTop - 22
	unknown                 = "–"
)

// chart is a rendered chart.
type chart struct {
	ID, Title, Says string
	Curves          []renderedCurve
	Grid            []line
	Times           []column
}

// renderedCurve is a rendered curve. Path is SVG's; Last and Value are its current value.
type renderedCurve struct {
	Number           int
	Name, Path, Last string
	Value            string
}

// line is a line of the grid, with its label.
type line struct {
	At   float64
	Says string
}

// column is a sample: its position, the width that selects it, and its values, in the order of the curves.
type column struct {
	At, Left, Width float64
	Time            string
	Values          []string
	Says            string
}

// chartOf renders the samples, with the newest at the right edge. It returns nil if there is nothing to draw.
func (k kind) chartOf(samples []*model.ContainerStats) *chart {
	out := &chart{ID: k.id, Title: k.title}
	values, top := k.values(samples)
	if math.IsNaN(top) {
		return nil
	}
	top = ceiling(top, k.bytes)
	newest := samples[len(samples)-1].Timestamp
	x := func(at time.Time) float64 {
		return round(plotLeft + plotWidth*(1-newest.Sub(at).Seconds()/keep.Seconds()))
	}
	y := func(v float64) float64 { return round(plotTop + plotHeight*(1-v/top)) }
	for i := range 3 {
		v := top * float64(i) / 2
		out.Grid = append(out.Grid, line{y(v), k.unit(v)})
	}
	for i, s := range samples {
		c := column{At: x(s.Timestamp), Time: s.Timestamp.Format(time.TimeOnly)}
		c.Left = plotLeft
		if i > 0 {
			c.Left = round((c.At + out.Times[i-1].At) / 2)
			out.Times[i-1].Width = round(c.Left - out.Times[i-1].Left)
		}
		c.Width = round(chartWidth - 8 - c.Left)
		c.Says = c.Time
		for n, v := range values {
			c.Values = append(c.Values, k.says(v[i]))
			c.Says += "\n" + k.curves[n].name + ": " + k.says(v[i])
		}
		out.Times = append(out.Times, c)
	}
	for n, v := range values {
		var path strings.Builder
		pen := "M"
		for i := range samples {
			if math.IsNaN(v[i]) {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%g %g", pen, out.Times[i].At, y(v[i]))
			pen = "L"
		}
		last := v[len(v)-1]
		d := renderedCurve{Number: n + 1, Name: k.curves[n].name, Path: path.String(), Last: k.says(last)}
		if !math.IsNaN(last) {
			d.Value = strconv.FormatFloat(last, 'f', -1, 64)
		}
		out.Curves = append(out.Curves, d)
		out.Says += ", " + d.Name + " " + d.Last
	}
	out.Says = k.title + strings.Replace(out.Says, ",", ":", 1)
	return out
}

// values returns each curve's values per sample, and their maximum: NaN if all are unknown. A counter has no value for the first
// sample.
func (k kind) values(samples []*model.ContainerStats) (all [][]float64, top float64) {
	top = math.NaN()
	for _, c := range k.curves {
		list := make([]float64, len(samples))
		for i, s := range samples {
			v := c.value(s)
			if !math.IsNaN(v) && math.IsNaN(top) {
				top = 0
			}
			if k.grows {
				v = math.NaN()
				if i > 0 {
					v = (c.value(s) - c.value(samples[i-1])) / s.Timestamp.Sub(samples[i-1].Timestamp).Seconds()
				}
				if v < 0 { // the counter was reset
					v = math.NaN()
				}
			}
			list[i] = v
			if v > top {
				top = v
			}
		}
		all = append(all, list)
	}
	return all, top
}

func (k kind) says(v float64) string {
	if math.IsNaN(v) {
		return unknown
	}
	return k.unit(v)
}

// ceiling returns the end of an axis, at least v: half of it has few digits, too.
func ceiling(v float64, binary bool) float64 {
	if binary {
		return math.Exp2(math.Ceil(math.Log2(max(v, 1024))))
	}
	if v <= 0 {
		return 1
	}
	size := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 4, 6, 8} {
		if v <= step*size {
			return step * size
		}
	}
	return 10 * size
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

func cores(v float64) string     { return number(v) + " cores" }
func perSecond(v float64) string { return inBytes(v) + "/s" }
func percent(v float64) string   { return number(v) + " %" }

// number formats with three significant digits, and none below a ten-thousandth.
func number(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'g', 3, 64)
}

func inBytes(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	at := 0
	for v >= 1024 && at < len(units)-1 {
		v, at = v/1024, at+1
	}
	return strconv.FormatFloat(v, 'f', min(at, 1), 64) + " " + units[at]
}
