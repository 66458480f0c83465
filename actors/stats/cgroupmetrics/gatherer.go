package cgroupmetrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/metrics"
	"github.com/google/cadvisor/lib/model"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/playlet-dev/playlet/cri"
)

// Gatherer implements prometheus.Gatherer for one answer: it adds the families of these cgroups to Others.
type Gatherer struct {
	Others prometheus.Gatherer
	// Cgroups are in cAdvisor's model, by name, each with its newest sample first. They are not changed.
	Cgroups  map[string]*model.ContainerInfo
	Now      time.Time
	Pressure bool // the machine supports it
}

// Gather implements prometheus.Gatherer.
func (c *Gatherer) Gather() ([]*dto.MetricFamily, error) {
	out, err := c.Others.Gather()
	g := &builder{now: c.Now, labels: map[[2]string]*dto.LabelPair{}, seen: map[ownLabels]int{}}
	cgroups := make([]labeledCgroup, 0, len(c.Cgroups))
	for _, info := range c.Cgroups {
		if len(info.Stats) > 0 {
			cgroups = append(cgroups, labeledCgroup{info, commonLabels(info), info.Stats[0].Timestamp.UnixMilli()})
		}
	}
	slices.SortFunc(cgroups, func(a, b labeledCgroup) int { return cmp.Compare(a.info.Name, b.info.Name) })
	for i := range families {
		if f := &families[i]; !f.pressure || c.Pressure {
			if one := g.one(f, cgroups); len(one.Metric) > 0 {
				out = append(out, one)
			}
		}
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, err
}

// builder builds the families of one answer in the form that the Prometheus client renders. A cgroup's labels are built once
// and shared by its metrics, and metrics are allocated in blocks: there are twenty thousand of them on a node of a hundred pods.
type builder struct {
	now    time.Time
	labels map[[2]string]*dto.LabelPair // of devices and the like, built once per answer
	seen   map[ownLabels]int            // the last round with a metric of these labels

	family *family
	out    *dto.MetricFamily
	cgroup *labeledCgroup
	round  int // counts the cgroups of the families
	slots  []slot
}

// ownLabels are a metric's labels beyond its cgroup's, comparable by address.
type ownLabels [4]*dto.LabelPair

// labeledCgroup is a cgroup with the labels common to its metrics.
type labeledCgroup struct {
	info  *model.ContainerInfo
	pairs []*dto.LabelPair // sorted by name
	at    int64            // time of the reading, ms since the epoch
}

// slot is the memory of one metric.
type slot struct {
	metric  dto.Metric
	gauge   dto.Gauge
	counter dto.Counter
	value   float64
	at      int64
}

// slotsAtOnce limits unused allocations.
const slotsAtOnce = 512

// labelNames are the kubelet's labels, sorted. Each family has all of them: those that do not apply are empty.
var labelNames = []string{"container", metrics.LabelID, metrics.LabelImage, metrics.LabelName, "namespace", "pod"}

// labels returns the values of labelNames.
func labels(info *model.ContainerInfo) []string {
	name, of := "", info.Spec.Labels
	if len(info.Aliases) > 0 {
		name = info.Aliases[0]
	}
	return []string{of[cri.LabelContainerName], info.Name, info.Spec.Image, name, of[cri.LabelPodNamespace], of[cri.LabelPodName]}
}

func commonLabels(info *model.ContainerInfo) []*dto.LabelPair {
	values := labels(info)
	pairs, out := make([]dto.LabelPair, len(labelNames)), make([]*dto.LabelPair, len(labelNames))
	for i := range labelNames {
		pairs[i].Name, pairs[i].Value = &labelNames[i], &values[i]
		out[i] = &pairs[i]
	}
	return out
}

func (g *builder) one(f *family, cgroups []labeledCgroup) *dto.MetricFamily {
	g.family, g.out = f, &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: f.kind.Enum()}
	for i := range cgroups {
		g.cgroup, g.round = &cgroups[i], g.round+1
		f.values(g, g.cgroup.info, g.cgroup.info.Stats[0])
	}
	return g.out
}

// add adds a metric of the cgroup, with the time of its reading and the values of the family's own labels. A second one with the
// same labels is dropped, as by a registry: a disk may have the device of a file system.
func (g *builder) add(value float64, own ...string) { g.addAt(g.cgroup.at, value, own...) }

func (g *builder) addAt(at int64, value float64, own ...string) {
	pairs := g.cgroup.pairs
	if len(own) > 0 {
		var key ownLabels
		if pairs, key = g.with(pairs, own); g.seen[key] == g.round {
			return
		}
		g.seen[key] = g.round
	}
	if len(g.slots) == 0 {
		g.slots = make([]slot, slotsAtOnce)
	}
	s := &g.slots[0]
	g.slots = g.slots[1:]
	s.value, s.at, s.metric.Label = value, at, pairs
	if g.family.kind == counter {
		s.counter.Value, s.metric.Counter = &s.value, &s.counter
	} else {
		s.gauge.Value, s.metric.Gauge = &s.value, &s.gauge
	}
	if !g.family.timeless {
		s.metric.TimestampMs = &s.at
	}
	g.out.Metric = append(g.out.Metric, &s.metric)
}

// with appends the family's own labels, in the order of names.
func (g *builder) with(pairs []*dto.LabelPair, own []string) (out []*dto.LabelPair, key ownLabels) {
	out = append(make([]*dto.LabelPair, 0, len(pairs)+len(own)), pairs...)
	for i := range own {
		label := [2]string{g.family.labels[i], strings.ToValidUTF8(own[i], "\uFFFD")} // required by the text format
		pair := g.labels[label]
		if pair == nil {
			pair = &dto.LabelPair{Name: &label[0], Value: &label[1]}
			g.labels[label] = pair
		}
		out, key[i] = append(out, pair), pair
	}
	slices.SortFunc(out, func(a, b *dto.LabelPair) int { return cmp.Compare(*a.Name, *b.Name) })
	return out, key
}
