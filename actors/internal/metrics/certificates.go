package metrics

import "github.com/prometheus/client_golang/prometheus"

var certificateStates = prometheus.NewDesc("kubelet_podcertificate_states",
	"Pod certificates in volumes, by signer and state: not_yet_issued, fresh, overdue_for_refresh, expired, denied, failed.",
	[]string{"signer_name", "state"}, nil)

// PodCertificates collects the number of certificates of projected volumes, by signer and state (KEP-4317). The function
// is called concurrently, and must not block.
type PodCertificates func() map[[2]string]int

// Describe implements prometheus.Collector.
func (PodCertificates) Describe(out chan<- *prometheus.Desc) { out <- certificateStates }

// Collect implements prometheus.Collector.
func (c PodCertificates) Collect(out chan<- prometheus.Metric) {
	for labels, n := range c() {
		out <- prometheus.MustNewConstMetric(certificateStates, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
}
