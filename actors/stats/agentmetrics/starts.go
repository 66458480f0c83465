package agentmetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
)

// starts observes the start times of pods. It reads them from statuses when metrics are read, once per pod, so that no watch of
// the board is needed. It misses a pod that exists only between two readings. Safe for concurrent use.
type starts struct {
	began      time.Time // earlier pods were counted by another agent
	toRunning  prometheus.Histogram
	total, own prometheus.Histogram
	containers prometheus.Histogram
	worker     *prometheus.HistogramVec
	first      prometheus.Gauge

	network bool // the start of a pod with its own network was observed
	mu      *sync.Mutex
	seen    map[types.UID]bool
}

func newStarts(began time.Time) starts {
	return starts{began: began, mu: &sync.Mutex{}, seen: map[types.UID]bool{},
		toRunning: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds",
			Help: "Time from when a pod was first seen until all its containers had started.", Buckets: startBuckets}),
		total: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_total_duration_seconds",
			Help: "Time from a pod's creation until all its containers had started.", Buckets: startBuckets}),
		own: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_sli_duration_seconds",
			Help:    "Time from a pod's creation until all its containers had started, without image pulls and init containers.",
			Buckets: startBuckets}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_containers_per_pod_count",
			Help: "Number of containers per pod.", Buckets: prometheus.ExponentialBuckets(1, 2, 5)}),
		first: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_first_network_pod_start_sli_duration_seconds",
			Help: "kubelet_pod_start_sli_duration_seconds of the first pod that does not use the host's network."}),
		worker: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds",
			Help: "Time from the start of a pod's actor until all containers had started.", Buckets: prometheus.DefBuckets},
			[]string{"operation_type"}),
	}
}

// look observes the pods that have started since the previous call.
func (s *starts) look(now *board.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := make(map[types.UID]bool, len(now.Pods))
	for _, p := range now.Pods {
		uid := p.Pod.UID
		started, all := startedAt(p.Status)
		switch {
		case s.seen[uid]:
			here[uid] = true
		case !all:
		default:
			here[uid] = true
			if p.Status.StartTime == nil || p.Status.StartTime.Time.Before(s.began.Truncate(time.Second)) {
				continue
			}
			took := max(started.Sub(p.Status.StartTime.Time), 0).Seconds()
			s.toRunning.Observe(took)
			s.worker.WithLabelValues("create").Observe(took) // the kubelet's other syncs are single messages here
			s.containers.Observe(float64(len(p.Pod.Spec.Containers)))
			if created := p.Pod.CreationTimestamp; !created.IsZero() {
				took := started.Sub(created.Time)
				s.total.Observe(max(took, 0).Seconds())
				if p.Source == messages.APIServer { // the creation time of a static pod is not its own
					took -= metrics.TakePull(uid) + initialized(p.Status)
					s.own.Observe(max(took, 0).Seconds())
					if !s.network && !p.Pod.Spec.HostNetwork {
						s.network = true
						s.first.Set(max(took, 0).Seconds())
					}
				}
			}
		}
	}
	s.seen = here
}

// initialized returns the run time of a pod's init containers.
func initialized(s *v1.PodStatus) (took time.Duration) {
	for i := range s.InitContainerStatuses {
		if t := s.InitContainerStatuses[i].State.Terminated; t != nil {
			took += t.FinishedAt.Sub(t.StartedAt.Time)
		}
	}
	return took
}

// startedAt returns the time at which the last of a pod's containers started for the first time. all is false if one has not
// started, or was restarted, so that its first start is unknown.
func startedAt(s *v1.PodStatus) (last time.Time, all bool) {
	if s == nil || len(s.ContainerStatuses) == 0 {
		return last, false
	}
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		if c.State.Running == nil || c.RestartCount > 0 {
			return last, false
		}
		if at := c.State.Running.StartedAt.Time; at.After(last) {
			last = at
		}
	}
	return last, true
}
