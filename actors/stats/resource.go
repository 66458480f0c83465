package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// resourceView is one answer of /metrics/resource, which metrics-server reads.
type resourceView struct {
	summary *api.Summary
	failed  bool // some figures are missing
}

var (
	ofContainer = []string{"container", "pod", "namespace"}
	ofPod       = []string{"pod", "namespace"}

	nodeCPU = prometheus.NewDesc("node_cpu_usage_seconds_total",
		"CPU time used by the node, in core-seconds.", nil, nil)
	nodeMemory = prometheus.NewDesc("node_memory_working_set_bytes",
		"Working set of the node, in bytes.", nil, nil)
	nodeSwap       = prometheus.NewDesc("node_swap_usage_bytes", "Swap used by the node, in bytes.", nil, nil)
	containerStart = prometheus.NewDesc("container_start_time_seconds",
		"Time at which the container started, in seconds since the epoch.", ofContainer, nil)
	containerCPU = prometheus.NewDesc("container_cpu_usage_seconds_total",
		"CPU time used by the container, in core-seconds.", ofContainer, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes",
		"Working set of the container, in bytes.", ofContainer, nil)
	containerSwap = prometheus.NewDesc("container_swap_usage_bytes",
		"Swap used by the container, in bytes.", ofContainer, nil)
	containerSwapLimit = prometheus.NewDesc("container_swap_limit_bytes",
		"Swap limit of the container, in bytes.", ofContainer, nil)
	podCPU = prometheus.NewDesc("pod_cpu_usage_seconds_total",
		"CPU time used by the pod, in core-seconds.", ofPod, nil)
	podMemory = prometheus.NewDesc("pod_memory_working_set_bytes",
		"Working set of the pod, in bytes.", ofPod, nil)
	podSwap       = prometheus.NewDesc("pod_swap_usage_bytes", "Swap used by the pod, in bytes.", ofPod, nil)
	resourceError = prometheus.NewDesc("resource_scrape_error", "1 if statistics could not be read, else 0.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*resourceView) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		nodeCPU, nodeMemory, nodeSwap, containerStart, containerCPU, containerMemory, containerSwap, containerSwapLimit, podCPU,
		podMemory, podSwap, resourceError,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (v *resourceView) Collect(out chan<- prometheus.Metric) {
	usage := func(cpu, memory, swap *prometheus.Desc, c *api.CPUStats, m *api.MemoryStats, s *api.SwapStats, labels ...string) {
		if c != nil {
			send(out, cpu, prometheus.CounterValue, c.Time, c.UsageCoreNanoSeconds, float64(time.Second), labels)
		}
		if m != nil {
			send(out, memory, prometheus.GaugeValue, m.Time, m.WorkingSetBytes, 1, labels)
		}
		if s != nil {
			send(out, swap, prometheus.GaugeValue, s.Time, s.SwapUsageBytes, 1, labels)
		}
	}
	node := v.summary.Node
	usage(nodeCPU, nodeMemory, nodeSwap, node.CPU, node.Memory, node.Swap)
	for _, p := range v.summary.Pods {
		ref := p.PodRef
		for _, c := range p.Containers {
			usage(containerCPU, containerMemory, containerSwap, c.CPU, c.Memory, c.Swap, c.Name, ref.Name, ref.Namespace)
			if s := c.Swap; s != nil && s.SwapAvailableBytes != nil && s.SwapUsageBytes != nil {
				limit := *s.SwapAvailableBytes + *s.SwapUsageBytes
				send(out, containerSwapLimit, prometheus.GaugeValue, s.Time, &limit, 1, []string{c.Name, ref.Name, ref.Namespace})
			}
			if c.StartTime.Unix() > 0 {
				out <- prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue,
					float64(c.StartTime.UnixNano())/float64(time.Second), c.Name, ref.Name, ref.Namespace)
			}
		}
		usage(podCPU, podMemory, podSwap, p.CPU, p.Memory, p.Swap, ref.Name, ref.Namespace)
	}
	failed := 0.0
	if v.failed {
		failed = 1
	}
	out <- prometheus.MustNewConstMetric(resourceError, prometheus.GaugeValue, failed)
}

// send sends a figure with the time of its reading, from which metrics-server computes rates.
func send(
	out chan<- prometheus.Metric, desc *prometheus.Desc, kind prometheus.ValueType, at metav1.Time, n *uint64, unit float64,
	labels []string,
) {
	if n != nil {
		out <- prometheus.NewMetricWithTimestamp(at.Time, prometheus.MustNewConstMetric(desc, kind, float64(*n)/unit, labels...))
	}
}
