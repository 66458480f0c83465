package stats

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
)

// usageView returns the last measured usage of container logs and claims' volumes. Reading it does not block: it requests walks
// of due pods with claims, and the next reading has the results.
type usageView struct{ c *Collector }

var logBytes = prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
	"Disk space used by a container's logs, in bytes.",
	[]string{"uid", "namespace", "pod", "container"}, nil)

// claimStats are the families of claims, with the figures of /stats/summary.
var claimStats = []struct {
	desc *prometheus.Desc
	of   func(space) uint64
}{
	{claimDesc("capacity_bytes", "Capacity of the claim's volume, in bytes."), func(s space) uint64 { return s.capacity }},
	{claimDesc("available_bytes", "Bytes available in the claim's volume."), func(s space) uint64 { return s.available }},
	{claimDesc("used_bytes", "Bytes used in the claim's volume."), func(s space) uint64 { return s.used }},
	{claimDesc("inodes", "Maximum number of inodes in the claim's volume."), func(s space) uint64 { return s.inodes }},
	{claimDesc("inodes_free", "Number of free inodes in the claim's volume."), func(s space) uint64 { return s.inodesFree }},
	{claimDesc("inodes_used", "Number of used inodes in the claim's volume."), func(s space) uint64 { return s.inodesUsed }},
}

func claimDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// Describe implements prometheus.Collector.
func (*usageView) Describe(out chan<- *prometheus.Desc) {
	out <- logBytes
	for _, s := range claimStats {
		out <- s.desc
	}
}

func (v *usageView) Collect(out chan<- prometheus.Metric) {
	claims := map[[2]string]bool{} // claims already reported: several pods may share one
	var pods []*v1.Pod
	asked := false
	for _, p := range v.c.opts.Board.Now().Pods {
		pods = append(pods, p.Pod)
		u := v.c.usage.of(p.Pod.UID)
		if u != nil {
			u.sendLogs(out, p)
		}
		if p.Status != nil && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed) || !hasClaims(p.Pod) {
			continue
		}
		asked = true
		if u == nil {
			continue
		}
		for i := range p.Pod.Spec.Volumes {
			volume := &p.Pod.Spec.Volumes[i]
			claim := [2]string{p.Pod.Namespace, podspec.ClaimOf(p.Pod, volume)}
			space, known := u.volume(volume.Name)
			if claim[1] == "" || !known || claims[claim] {
				continue
			}
			claims[claim] = true
			for _, s := range claimStats {
				out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(s.of(space)), claim[:]...)
			}
		}
	}
	v.c.mu.Lock()
	tell := v.c.tell
	v.c.mu.Unlock()
	if asked && tell != nil && v.c.opts.UsageAge > 0 {
		tell(messages.Stats, messages.MeasureUsage{Pods: pods, Claims: true})
	}
}

func (u *podUsage) sendLogs(out chan<- prometheus.Metric, p board.Pod) {
	for s := range podspec.Statuses(p.Status) {
		if logs, ok := u.logs[s.Name]; ok {
			out <- prometheus.MustNewConstMetric(logBytes, prometheus.GaugeValue, float64(logs.used),
				string(p.Pod.UID), p.Pod.Namespace, p.Pod.Name, s.Name)
		}
	}
}

// hasClaims reports whether a volume of the pod is a claim's.
func hasClaims(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return podspec.ClaimOf(p, &v) != "" })
}
