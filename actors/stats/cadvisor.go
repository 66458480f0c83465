package stats

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/metrics"
	"github.com/google/cadvisor/lib/model"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/stats/cgroupmetrics"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
	"github.com/playlet-dev/playlet/cri"
)

// cadvisorView is one answer of /metrics/cadvisor: it takes the place of cAdvisor's manager for the library's collectors.
type cadvisorView struct {
	ctx     context.Context
	c       *Collector
	figures *figures
	pause   string // the image of sandboxes; empty if unknown
}

// view collects figures for one answer, reading those older than age.
func (c *Collector) view(ctx context.Context, age time.Duration) *cadvisorView {
	f := c.collect(ctx, age, false, urgency{})
	mounted, err := c.mounted.get(ctx, age)
	if err != nil {
		f.lacks = append(f.lacks, err.Error())
	}
	f.mounted = mounted
	return &cadvisorView{ctx, c, f, c.sandboxImage(ctx, f)}
}

// cadvisor returns cAdvisor's families, with the kubelet's labels, for one answer. It gathers the families of containers itself,
// and the others through the library.
func (c *Collector) cadvisor(ctx context.Context) prometheus.Gatherer {
	v := c.view(ctx, fullAge)
	others := prometheus.NewRegistry()
	none := func(*model.ContainerInfo) map[string]string { return nil }
	others.MustRegister(metrics.NewPrometheusCollector(v, none, cgroupstats.Metrics(), clock.RealClock{}, model.RequestOptions{}),
		metrics.NewPrometheusMachineCollector(v, cgroupstats.Metrics()))
	pressure := cgroupstats.Metrics().Has(container.PressureMetrics)
	return &cgroupmetrics.Gatherer{Others: others, Cgroups: v.containers(), Now: c.opts.Now(), Pressure: pressure}
}

// Containers returns all cgroups in cAdvisor's model, by name, each with one sample, which is at most age old (but may be a
// second old). They are shared and must not be changed. lacks describes missing figures in sentences.
func (c *Collector) Containers(ctx context.Context, age time.Duration) (all map[string]*model.ContainerInfo, lacks []string) {
	v := c.view(ctx, age)
	if all = v.containers(); len(all) == 0 {
		return nil, append(v.figures.lacks, errNothing.Error())
	}
	return all, v.figures.lacks
}

// Machine returns the machine's properties, which must not be changed.
func (c *Collector) Machine(ctx context.Context) (*model.MachineInfo, error) {
	return c.machine.get(ctx, machineAge)
}

// sandboxImage returns the image of the sandboxes, by which dashboards distinguish a pod's network from its cgroup. It is a label
// and no figure: an answer without it is complete.
func (c *Collector) sandboxImage(ctx context.Context, f *figures) string {
	at := slices.IndexFunc(f.pods, func(p podFigures) bool { return p.sandbox != nil })
	if at < 0 {
		return ""
	}
	c.sandbox.Store(&f.pods[at].sandbox.ID)
	image, _ := c.pause.get(ctx, machineAge)
	return image
}

// containers returns all cgroups, and adds the labels of pods.
func (v *cadvisorView) containers() map[string]*model.ContainerInfo {
	out := make(map[string]*model.ContainerInfo, len(v.figures.cgroups))
	for name, g := range v.figures.cgroups {
		out[name] = v.withDisks(name, g.Info) // a pod that does not run has no labels
	}
	for _, p := range v.figures.pods {
		pod := map[string]string{cri.LabelPodNamespace: p.Pod.Pod.Namespace, cri.LabelPodName: p.Pod.Pod.Name}
		add := func(g *cgroupstats.Cgroup, of map[string]string, image string) *model.ContainerInfo {
			if g == nil {
				return nil
			}
			info := *g.Info // the rest is shared, and not changed
			info.Spec.Labels, info.Spec.Image = of, image
			if g.ID != "" {
				info.Aliases = []string{g.ID}
			}
			out[info.Name] = &info
			return &info
		}
		add(p.own, pod, "")
		add(p.sandbox, pod, v.pause)
		for _, c := range p.containers {
			of := maps.Clone(pod)
			of[cri.LabelContainerName] = c.status.Name
			if info := add(c.cgroup, of, c.status.Image); info != nil {
				info.Spec.StartTime = c.started
			}
		}
	}
	return out
}

// GetRequestedContainersInfo returns no containers to the library. An error sets container_scrape_error to 1. It is returned only
// if nothing was read, so that partial figures still reach the client.
func (v *cadvisorView) GetRequestedContainersInfo(string, model.RequestOptions) (map[string]*model.ContainerInfo, error) {
	if len(v.figures.cgroups) == 0 {
		return nil, errNothing
	}
	return nil, nil
}

// withDisks adds the mounted file systems to the root.
func (v *cadvisorView) withDisks(name string, info *model.ContainerInfo) *model.ContainerInfo {
	if name != "/" || len(info.Stats) == 0 {
		return info
	}
	out, stats := *info, *info.Stats[0]
	stats.Filesystem = v.figures.mounted
	out.Stats, out.Spec.HasFilesystem = []*model.ContainerStats{&stats}, true
	return &out
}

// GetMachineInfo returns the machine's properties.
func (v *cadvisorView) GetMachineInfo() (*model.MachineInfo, error) {
	return v.c.Machine(v.ctx)
}

// GetVersionInfo returns the versions for cadvisor_version_info.
func (*cadvisorView) GetVersionInfo() (*model.VersionInfo, error) {
	return &model.VersionInfo{KernelVersion: machine.KernelVersion(), ContainerOsVersion: machine.ContainerOsVersion()}, nil
}
