package dra

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/playlet-dev/playlet/messages"
)

// healthTimeout is how long a report of a device counts unless the driver sets another time; the kubelet's.
const healthTimeout = 30 * time.Second

type deviceID struct{ pool, name string }

// deviceHealth is the last report of a device (KEP-4680).
type deviceHealth struct {
	status  v1.ResourceHealthStatus
	message string
	timeout time.Duration
	at      time.Time
}

// reports are the last reports of devices, by driver.
type reports map[string]map[deviceID]deviceHealth

// of returns the health of a device and the driver's message. A device without a recent report is unknown.
func (r reports) of(now time.Time, driver string, id deviceID) (v1.ResourceHealthStatus, string) {
	h, known := r[driver][id]
	if !known || now.Sub(h.at) > h.timeout {
		return v1.ResourceHealthStatusUnknown, ""
	}
	return h.status, h.message
}

// take applies a driver's list. It returns the devices with another health than before, and the time until the first report
// expires. Devices that the list lacks keep their last report until it expires. New devices over the limit are ignored.
func (r reports) take(now time.Time, driver string, list []*healthapi.DeviceHealth) (changed sets.Set[deviceID],
	until time.Duration) {
	changed = sets.New[deviceID]()
	if r[driver] == nil {
		r[driver] = map[deviceID]deviceHealth{}
	}
	if len(r[driver])+len(list) > maxReports {
		r.prune(now, driver)
	}
	for _, d := range list {
		id := deviceID{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		h := deviceHealth{status: statusOf(d.GetHealth()), at: now, timeout: healthTimeout,
			message: messages.Shorten(d.GetMessage(), v1.ResourceHealthMessageMaxLength)}
		if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
			h.timeout = time.Duration(min(s, int64(24*time.Hour/time.Second))) * time.Second
		}
		if _, known := r[driver][id]; !known && len(r[driver]) >= maxReports {
			continue
		}
		if status, message := r.of(now, driver, id); status != h.status || message != h.message {
			changed.Insert(id)
		}
		r[driver][id] = h
		if until == 0 || h.timeout < until {
			until = h.timeout
		}
	}
	return changed, until
}

// maxReports limits the reported devices of a driver, which may send other names each time.
const maxReports = 10_000

// prune forgets the expired reports of a driver.
func (r reports) prune(now time.Time, driver string) {
	maps.DeleteFunc(r[driver], func(_ deviceID, h deviceHealth) bool { return now.Sub(h.at) > h.timeout })
}

// drop forgets the reports of a driver, and returns their devices.
func (r reports) drop(driver string) sets.Set[deviceID] {
	gone := sets.KeySet(r[driver])
	delete(r, driver)
	return gone
}

func statusOf(s healthapi.HealthStatus) v1.ResourceHealthStatus {
	switch s {
	case healthapi.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	default:
		return v1.ResourceHealthStatusUnknown
	}
}
