package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// claimsInUse collects the family of prepared ResourceClaims. It has only the drivers of the last call of ClaimsInUse: a driver
// that is gone leaves no series behind.
type claimsInUse struct {
	desc   *prometheus.Desc
	counts atomic.Pointer[map[string]int]
}

var claims = register(&claimsInUse{desc: prometheus.NewDesc("dra_resource_claims_in_use",
	"Prepared ResourceClaims, by driver; <any> is the total over all drivers.", []string{"driver_name"}, nil)}, 1, nil)

// ClaimsInUse sets the numbers of prepared ResourceClaims by driver. The map must not change afterwards.
func ClaimsInUse(byDriver map[string]int) { claims.counts.Store(&byDriver) }

// Describe implements prometheus.Collector.
func (c *claimsInUse) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *claimsInUse) Collect(out chan<- prometheus.Metric) {
	if counts := c.counts.Load(); counts != nil {
		for driver, n := range *counts {
			out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), driver)
		}
	}
}
