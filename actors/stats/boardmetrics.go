package stats

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
	"github.com/playlet-dev/playlet/messages"
)

// boardView gives the families that the board tells of, as it is when they are asked for.
type boardView struct{ m *Metrics }

var (
	nodeName          = desc("kubelet_node_name", "The node's name; the value is always 1.", "node")
	runningPods       = desc("kubelet_running_pods", "Pods that have a sandbox which runs.")
	runningContainers = desc("kubelet_running_containers", "Containers, by their state.", "container_state")
	desiredPods       = desc("kubelet_desired_pods", "Pods that this node is to run.", "static")
	activePods        = desc("kubelet_active_pods", "Pods that have not ended.", "static")
	workingPods       = desc("kubelet_working_pods", "Pods that have an actor, by what is being done.",
		"lifecycle", "config", "static")
	pendingResizes = desc("kubelet_pod_pending_resizes", "Pods that ask for other resources than they were given, by why.",
		"reason")
	activeResizes = desc("kubelet_pod_in_progress_resizes", "Pods whose new resources are being carried out.")

	ephemeral     = desc("kubelet_managed_ephemeral_containers", "Ephemeral containers of the pods here.")
	cgroupVersion = desc("kubelet_cgroup_version", "The version of cgroups that the machine has.")
	clientExpiry  = desc("kubelet_certificate_manager_client_ttl_seconds",
		"Seconds until the client certificate ends; negative once it has.")
	servingExpiry = desc("kubelet_certificate_manager_server_ttl_seconds",
		"Seconds until the serving certificate ends; negative once it has.")
	buildInfo = desc("kubernetes_build_info", "The release of Kubernetes that is spoken; the value is always 1.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform")
	featureEnabled = desc("kubernetes_feature_enabled", "Whether a feature gate is on.", "name", "stage")
	provider       = desc("kubelet_metrics_provider", "Who reads the figures of containers; the value is always 1.", "provider")
	totalVolumes   = desc("volume_manager_total_volumes", "Volumes of pods, those that are desired and those that are mounted.",
		"plugin_name", "state")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (*boardView) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		nodeName, runningPods, runningContainers, desiredPods, activePods, workingPods, pendingResizes, activeResizes, ephemeral,
		cgroupVersion, clientExpiry, servingExpiry, buildInfo, featureEnabled, provider, totalVolumes,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (v *boardView) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	o := v.m.opts
	gauge(nodeName, 1, o.NodeName)
	release := append(strings.SplitN(o.Kubernetes, ".", 3), "", "")
	gauge(buildInfo, 1, release[0], release[1], "v"+o.Kubernetes, "", "", "", runtime.Version(), runtime.Compiler,
		runtime.GOOS+"/"+runtime.GOARCH) // no commit and no date: it is not Kubernetes that was built
	gauge(provider, 1, "cadvisor")
	for _, f := range o.Features {
		on := 0.0
		if f.On {
			on = 1
		}
		gauge(featureEnabled, on, f.Name, strings.ToUpper(f.Stage))
	}

	var running, debug float64
	states := map[string]float64{"running": 0, "exited": 0}
	desired, active := map[string]float64{"true": 0, "": 0}, map[string]float64{"true": 0, "": 0}
	working, volumes := map[[3]string]float64{}, map[[2]string]float64{}
	resizes, pending := 0.0, map[string]float64{}
	for _, p := range o.Board.Now().Pods {
		static := ""
		if p.Source != messages.APIServer {
			static = "true"
		}
		if p.Ending == "" {
			desired[static]++
		}
		ended := p.Status != nil && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
		if !ended {
			active[static]++
		}
		if p.Phase != "" {
			working[[3]string{lifecycle(p.Phase), "desired", static}]++
		}
		for state := range volumeStates(p.Phase) {
			for _, v := range podspec.UsedVolumes(p.Pod) {
				volumes[[2]string{podspec.VolumePlugin(v), state}]++
			}
		}
		up := p.Status != nil && p.Status.PodIP != "" && !ended
		for s := range statuses(p.Status) {
			switch {
			case s.State.Running != nil:
				up = true
				states["running"]++
			case s.State.Terminated != nil:
				states["exited"]++
			}
		}
		if up {
			running++
		}
		resizes += countResizes(p.Status, pending)
		debug += float64(len(p.Pod.Spec.EphemeralContainers))
	}
	gauge(runningPods, running)
	gauge(ephemeral, debug)
	gauge(activeResizes, resizes)
	for reason, n := range pending {
		gauge(pendingResizes, n, reason)
	}
	version := 1.0
	if cgroupstats.Unified() {
		version = 2
	}
	gauge(cgroupVersion, version)
	for state, n := range states {
		gauge(runningContainers, n, state)
	}
	for static := range desired {
		gauge(desiredPods, desired[static], static)
		gauge(activePods, active[static], static)
	}
	for of, n := range working {
		gauge(workingPods, n, of[0], of[1], of[2])
	}
	for of, n := range volumes {
		gauge(totalVolumes, n, of[0], of[1])
	}
	if o.Expiry == nil {
		return
	}
	for name, d := range map[string]*prometheus.Desc{"client": clientExpiry, "serving": servingExpiry} {
		if at := o.Expiry()[name]; !at.IsZero() {
			gauge(d, time.Until(at).Seconds())
		}
	}
}

// countResizes counts by the status of a pod whether its resize waits, by why, and gives how many are being carried out of it.
func countResizes(s *v1.PodStatus, pending map[string]float64) (inProgress float64) {
	if s == nil {
		return 0
	}
	for i := range s.Conditions {
		switch c := &s.Conditions[i]; c.Type {
		case v1.PodResizePending:
			pending[strings.ToLower(c.Reason)]++
		case v1.PodResizeInProgress:
			inProgress++
		}
	}
	return inProgress
}

// lifecycle is the kubelet's word for the phase of a pod's actor.
func lifecycle(phase string) string {
	switch phase {
	case "terminating":
		return "terminating"
	case "cleaning", "finished":
		return "terminated"
	}
	return "sync"
}

// volumeStates are the kubelet's words for the volumes of a pod whose actor is in that phase: containers begin when all are
// mounted, and none is unmounted before they have ended.
func volumeStates(phase string) func(yield func(string) bool) {
	const desired, actual = "desired_state_of_world", "actual_state_of_world"
	switch phase {
	case "preparing":
		return slices.Values([]string{desired})
	case "initializing", "running":
		return slices.Values([]string{desired, actual})
	case "terminating":
		return slices.Values([]string{actual})
	}
	return slices.Values([]string(nil))
}

// starts observes how long pods took to start. It reads the times in their statuses when metrics are read, each pod's once,
// so that nobody has to watch the board. A pod that came and went between two readings is not counted. Safe for concurrent
// use.
type starts struct {
	began      time.Time // pods from before were another agent's to count
	toRunning  prometheus.Histogram
	total, own prometheus.Histogram
	containers prometheus.Histogram
	worker     *prometheus.HistogramVec

	mu   *sync.Mutex
	seen map[types.UID]bool
}

func newStarts(began time.Time) starts {
	return starts{began: began, mu: &sync.Mutex{}, seen: map[types.UID]bool{},
		toRunning: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds",
			Help: "Time from when a pod was seen first until all its containers had started.", Buckets: startBuckets}),
		total: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_total_duration_seconds",
			Help: "Time from a pod's creation until all its containers had started.", Buckets: startBuckets}),
		own: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_sli_duration_seconds",
			Help:    "Time from a pod's creation until all its containers had started, less that of pulls and init containers.",
			Buckets: startBuckets}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_containers_per_pod_count",
			Help: "How many containers pods have.", Buckets: prometheus.ExponentialBuckets(1, 2, 5)}),
		worker: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds",
			Help: "Time that a pod's actor took to start all its containers.", Buckets: prometheus.DefBuckets},
			[]string{"operation_type"}),
	}
}

// look observes the pods that have started since it looked last.
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
			s.worker.WithLabelValues("create").Observe(took) // the other syncs of the kubelet are single messages here
			s.containers.Observe(float64(len(p.Pod.Spec.Containers)))
			if created := p.Pod.CreationTimestamp; !created.IsZero() {
				took := started.Sub(created.Time)
				s.total.Observe(max(took, 0).Seconds())
				if p.Source == messages.APIServer { // a static pod's creation is not its own
					took -= metrics.TakePull(uid) + initialized(p.Status)
					s.own.Observe(max(took, 0).Seconds())
				}
			}
		}
	}
	s.seen = here
}

// initialized is how long a pod's init containers ran.
func initialized(s *v1.PodStatus) (took time.Duration) {
	for i := range s.InitContainerStatuses {
		if t := s.InitContainerStatuses[i].State.Terminated; t != nil {
			took += t.FinishedAt.Sub(t.StartedAt.Time)
		}
	}
	return took
}

// startedAt is when the last of a pod's containers started for the first time; false while one has not, or has been restarted, so
// that it is not told.
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

// logView gives what the logs of containers use, as it was measured last: who reads metrics has nothing measured.
type logView struct{ c *Collector }

var logBytes = desc("kubelet_container_log_filesystem_used_bytes", "What the logs of a container use of the disk.",
	"uid", "namespace", "pod", "container")

// Describe implements prometheus.Collector.
func (*logView) Describe(out chan<- *prometheus.Desc) { out <- logBytes }

// Collect implements prometheus.Collector.
func (v *logView) Collect(out chan<- prometheus.Metric) {
	for _, p := range v.c.opts.Board.Now().Pods {
		u := v.c.usage.of(p.Pod.UID)
		if u == nil {
			continue
		}
		for s := range statuses(p.Status) {
			if logs, ok := u.logs[s.Name]; ok {
				out <- prometheus.MustNewConstMetric(logBytes, prometheus.GaugeValue, float64(logs.used),
					string(p.Pod.UID), p.Pod.Namespace, p.Pod.Name, s.Name)
			}
		}
	}
}
