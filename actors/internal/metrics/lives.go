package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Families about the lives of pods, containers and the node.
var (
	terminated = counter("kubelet_terminated_containers_total",
		"Containers that terminated.", "container_type", "exit_code", "reason")
	unstarted = counter("kubelet_started_containers_errors_total", "Container starts that failed, by reason.",
		"container_type", "code")
	restarted = counter("kubelet_restarted_pods_total",
		"Pods recreated with the same UID while they were terminating.", "static")
	WorkerStart = histogram("kubelet_pod_worker_start_duration_seconds",
		"Time from when a pod was first seen until its actor started.", prometheus.DefBuckets)

	startupAgent = gauge("kubelet_node_startup_pre_kubelet_duration_seconds",
		"Time from the machine's boot until the agent started.")
	startupAttempt = gauge("kubelet_node_startup_pre_registration_duration_seconds",
		"Time from the agent's start until its first attempt to register the node.")
	startupRegistered = gauge("kubelet_node_startup_registration_duration_seconds",
		"Duration of the node's registration.")
	startupReady = gauge("kubelet_node_startup_post_registration_duration_seconds",
		"Time from the node's registration until it was ready.")
	startupAll = gauge("kubelet_node_startup_duration_seconds", "Time from the machine's boot until the node was ready.")

	ProviderErrors = counter("kubelet_credential_provider_plugin_errors_total", "Failed runs of credential provider plugins.",
		"plugin_name")
	ProviderTime = histogram("kubelet_credential_provider_plugin_duration",
		"Duration of runs of credential provider plugins, in seconds.",
		prometheus.DefBuckets, "plugin_name")
	providerConfig = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_credential_provider_config_info",
		Help: "Hash of the credential provider configuration; the value is always 1."}, []string{"hash"})
	_ = register(providerConfig, 1, nil)

	losingSupport = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_cri_losing_support",
		Help: "First Kubernetes version that will not support this container runtime; the value is always 1."},
		[]string{"version"})
	_ = register(losingSupport, 1, nil)

	PullIntents   = gauge("kubelet_imagemanager_ondisk_pullintents", "Image pulls recorded on disk as started.")
	PulledRecords = gauge("kubelet_imagemanager_ondisk_pulledrecords", "Pulled images whose credentials are recorded on disk.")
	PullChecks    = counter("kubelet_imagemanager_image_mustpull_checks_total",
		"Checks whether a pod may use an image already present on the node, by result.", "result")
)

// SetProviderConfig takes the hash of the configuration of credential providers.
func SetProviderConfig(hash string) {
	providerConfig.Reset()
	providerConfig.WithLabelValues(hash).Set(1)
}

// RuntimeOutdated records whether the container runtime lacks RuntimeConfig, without which Kubernetes 1.37 does not support it
// (KEP-4033).
func RuntimeOutdated(outdated bool) {
	losingSupport.Reset()
	if outdated {
		losingSupport.WithLabelValues("1.37.0").Set(1)
	}
}

// containerLists are the containers' statuses by the value of the label container_type.
func containerLists(s *v1.PodStatus) map[string][]v1.ContainerStatus {
	return map[string][]v1.ContainerStatus{"container": s.ContainerStatuses, "init_container": s.InitContainerStatuses,
		"ephemeral_container": s.EphemeralContainerStatuses}
}

// StatusChanged counts the containers that have ended between two statuses of a pod. Without an earlier status nothing is
// counted: an agent before this one has seen the end.
func StatusChanged(was, now *v1.PodStatus) {
	if was == nil || now == nil {
		return
	}
	before := containerLists(was)
	for kind, all := range containerLists(now) {
		ended := map[string]bool{}
		for i := range before[kind] {
			ended[before[kind][i].Name] = before[kind][i].State.Terminated != nil
		}
		for i := range all {
			if t := all[i].State.Terminated; t != nil && !ended[all[i].Name] {
				terminated.WithLabelValues(kind, strconv.Itoa(int(t.ExitCode)), t.Reason).Inc()
			}
		}
	}
}

// NotStarted counts a start of a container that failed, by the code of its reason.
func NotStarted(pod *v1.Pod, container, code string) {
	kind := "container"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			kind = "init_container"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			kind = "ephemeral_container"
		}
	}
	unstarted.WithLabelValues(kind, code).Inc()
}

// PodRestarted counts a pod that came back with its UID.
func PodRestarted(static bool) {
	label := ""
	if static {
		label = "true"
	}
	restarted.WithLabelValues(label).Inc()
}

// NodeStartup observes how a new node became ready. It is for one goroutine at a time; the zero value is ready for use.
type NodeStartup struct{ attempted, registered, ready time.Time }

// Attempted notes the first try to register the node.
func (s *NodeStartup) Attempted(now time.Time) {
	if s.attempted.IsZero() {
		s.attempted = now
	}
}

// Registered notes that a new Node was made; began is when the agent started.
func (s *NodeStartup) Registered(began, now time.Time) {
	if s.attempted.IsZero() || !s.registered.IsZero() {
		return
	}
	s.registered = now
	if up := uptime(); up > 0 {
		startupAgent.Set((up - now.Sub(began)).Seconds())
	}
	startupAttempt.Set(s.attempted.Sub(began).Seconds())
	startupRegistered.Set(now.Sub(s.attempted).Seconds())
}

// Observed takes the Node as it is: it may be ready for the first time.
func (s *NodeStartup) Observed(node *v1.Node, now time.Time) {
	if node == nil || s.registered.IsZero() || !s.ready.IsZero() {
		return
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			s.ready = now
			startupReady.Set(now.Sub(s.registered).Seconds())
			startupAll.Set(uptime().Seconds())
		}
	}
}

// uptime is since the machine's start; 0 where it is not known.
func uptime() time.Duration {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return time.Duration(info.Uptime) * time.Second
}
