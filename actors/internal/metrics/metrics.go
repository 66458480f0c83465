// Package metrics counts the work of actors, in the kubelet's families of metrics. Families derived from the board or from
// calls of the runtime are in actors/stats/agentmetrics, which serves both. All functions are safe for concurrent use and
// never block, so that mailboxes may call them. The counters belong to the process and survive restarts of actors.
package metrics

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// Registry has the families of this package.
var Registry = prometheus.NewRegistry()

// Buckets in seconds, as the kubelet has them.
var (
	syncBuckets    = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60}
	pullBuckets    = []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	storageBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	rotateBuckets  = []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000}
	resizeBuckets  = []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000} // ms
)

// draBuckets are in seconds, as the kubelet has them.
var draBuckets = prometheus.ExponentialBucketsRange(.1, 40, 15)

// The families.
var (
	rejections  = counter("kubelet_admission_rejections_total", "Pods rejected at admission, by reason.", "reason")
	Preemptions = counter("kubelet_preemptions", "Pods preempted to admit a critical pod, by the resource in short supply.",
		"preemption_signal")
	Evictions   = counter("kubelet_evictions", "Pods evicted, by eviction signal.", "eviction_signal")
	EvictionAge = histogram("kubelet_eviction_stats_age_seconds", "Age of the statistics on which a pod's eviction was based.",
		prometheus.DefBuckets, "eviction_signal")
	MirrorPods   = gauge("kubelet_mirror_pods", "Mirror pods in the API server for this node's static pods.")
	OrphanedPods = counter("kubelet_orphaned_runtime_pods_total",
		"Pods found in the container runtime that belong to no known pod.")

	RequestedResizes = counter("kubelet_container_requested_resizes_total",
		"Resizes requested for containers; each resource is counted separately.",
		"resource", "requirement", "operation")
	InfeasibleResizes = counter("kubelet_pod_infeasible_resizes_total",
		"Pod resizes that this node can never satisfy, by reason.", "reason_detail")
	DeferredResizes = counter("kubelet_pod_deferred_accepted_resizes_total",
		"Deferred pod resizes that were later admitted, by the trigger of the retry.", "retry_trigger")
	resizeTime = histogram("kubelet_pod_resize_duration_milliseconds",
		"Time to apply a pod resize, including container restarts, or until an attempt failed.",
		resizeBuckets, "success")

	CgroupTime = histogram("kubelet_cgroup_manager_duration_seconds", "Duration of cgroup operations.",
		prometheus.DefBuckets, "operation_type")
	PluginRegistrations = counter("kubelet_device_plugin_registration_total", "Device plugin registrations.", "resource_name")
	PluginAllocation    = histogram("kubelet_device_plugin_alloc_duration_seconds",
		"Duration of Allocate calls to device plugins.", prometheus.DefBuckets, "resource_name")
	// ClaimTime is of the ResourceClaims of a pod, by operation and whether it failed; DriverTime is of the calls of DRA drivers.
	ClaimTime = histogram("dra_operations_duration_seconds",
		"Time to prepare or unprepare all ResourceClaims of a pod.", draBuckets, "operation_name", "is_error")
	DriverTime = histogram("dra_grpc_operations_duration_seconds", "Duration of calls to DRA drivers.", draBuckets,
		"driver_name", "method_name", "grpc_status_code")
	podResources = map[string]*prometheus.CounterVec{
		"requests_total": podResourcesCounter("requests_total", "Requests to the pod resources API."),
		"requests_list":  podResourcesCounter("requests_list", "Requests for the resources of all pods."),
		"requests_get":   podResourcesCounter("requests_get", "Requests for the resources of one pod."),
		"requests_get_allocatable": podResourcesCounter("requests_get_allocatable",
			"Requests for the node's allocatable resources."),
		"errors_list": podResourcesCounter("errors_list", "Failed requests for the resources of all pods."),
		"errors_get":  podResourcesCounter("errors_get", "Failed requests for the resources of one pod."),
		"errors_get_allocatable": podResourcesCounter("errors_get_allocatable",
			"Failed requests for the node's allocatable resources."),
	}
	pullTime = histogram("kubelet_image_pull_duration_seconds", "Duration of image pulls, including time in the queue.",
		pullBuckets, "image_size_in_bytes")
	CollectedImages = counter("kubelet_image_garbage_collected_total", "Unused images removed, by reason: age or space.",
		"reason")
	imageVolumes       = counter("kubelet_image_volume_requested_total", "Image volumes requested by containers.")
	imageVolumesThere  = counter("kubelet_image_volume_mounted_succeed_total", "Image volumes mounted.")
	imageVolumesFailed = counter("kubelet_image_volume_mounted_errors_total", "Image volumes that could not be mounted.")
	StatusTime         = histogram("kubelet_pod_status_sync_duration_seconds",
		"Time from a change of a pod's status until the API server was updated.", syncBuckets)
	storageTime = histogram("storage_operation_duration_seconds", "Duration of volume operations.", storageBuckets,
		"volume_plugin", "operation_name", "status", "migrated")
	mountTime = histogram("volume_operation_total_seconds",
		"Time from a pod's request for a volume until it was mounted, including waits and retries.", storageBuckets,
		"plugin_name", "operation_name")
	csiTime = histogram("csi_operations_seconds", "Duration of calls to CSI drivers.", storageBuckets, "driver_name",
		"method_name", "grpc_status_code", "migrated")

	relistTime = histogram("kubelet_pleg_relist_duration_seconds", "Duration of full relists of the container runtime.",
		prometheus.DefBuckets)
	relistInterval = histogram("kubelet_pleg_relist_interval_seconds", "Interval between full relists of the container runtime.",
		prometheus.DefBuckets)
	// ShutdownStart and ShutdownEnd are of the last shutdown of the machine that waited for its pods.
	ShutdownStart = gauge("kubelet_graceful_shutdown_start_time_seconds",
		"Time at which the last graceful node shutdown began, in seconds since the epoch.")
	ShutdownEnd = gauge("kubelet_graceful_shutdown_end_time_seconds",
		"Time at which the last graceful node shutdown completed, in seconds since the epoch; 0 if it did not.")

	relistSeen = gauge("kubelet_pleg_last_seen_seconds",
		"Time at which the last full relist of the container runtime began, in seconds since the epoch.")

	ClientRenewErrors = counter("kubelet_certificate_manager_client_expiration_renew_errors",
		"Failed renewals of the client certificate.")
	ServingRenewErrors = counter("kubelet_server_expiration_renew_errors", "Failed renewals of the serving certificate.")
	ServingRotation    = histogram("kubelet_certificate_manager_server_rotation_seconds",
		"Age of serving certificates when they were replaced.", rotateBuckets)

	HTTPFallbacks = counter("kubelet_lifecycle_handler_http_fallbacks_total",
		"HTTPS lifecycle hooks that fell back to plain HTTP.")
	CutSleeps = counter("kubelet_sleep_action_terminated_early_total",
		"Sleep lifecycle hooks terminated before they finished.")
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	return register(c, len(labels), func() { c.WithLabelValues() })
}

func podResourcesCounter(name, help string) *prometheus.CounterVec {
	return counter("kubelet_pod_resources_endpoint_"+name, help, "server_api_version")
}

// PodResources counts requests to a version of the pod resources API as "requests_total" or another name of its families.
func PodResources(version string, names ...string) {
	for _, name := range names {
		podResources[name].WithLabelValues(version).Inc()
	}
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	return register(h, len(labels), func() { h.WithLabelValues() })
}

func gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	return register(g, 0, func() {})
}

// register registers a family. One without labels is exposed from the start, as zero.
func register[C prometheus.Collector](c C, labels int, zero func()) C {
	Registry.MustRegister(c)
	if labels == 0 {
		zero()
	}
	return c
}

// Since observes the time since then, in seconds.
func Since(h *prometheus.HistogramVec, then time.Time, labels ...string) {
	h.WithLabelValues(labels...).Observe(time.Since(then).Seconds())
}

// Refused counts a pod that is refused. A reason that names a resource of others' making is one label: these have no bound.
func Refused(reason string) {
	if of, short := strings.CutPrefix(reason, "OutOf"); short && !slices.Contains([]v1.ResourceName{
		v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods}, v1.ResourceName(of)) {
		reason = "OutOfExtendedResources"
	}
	rejections.WithLabelValues(reason).Inc()
}

// Resized observes how long a resize of a pod took, or one try at it that failed.
func Resized(success bool, took time.Duration) {
	resizeTime.WithLabelValues(strconv.FormatBool(success)).Observe(float64(took.Milliseconds()))
}

// Stored observes an operation on a volume by the name of its plugin: "volume_mount", "volume_unmount" and "unmount_device", or
// "map_volume", "unmap_volume" and "unmap_device" of a block device.
func Stored(plugin, operation string, began time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	Since(storageTime, began, plugin, operation, status, "false")
}

// Mounted observes how long a pod has waited for one of its volumes, by the name of its plugin.
func Mounted(plugin string, since time.Time) { Since(mountTime, since, plugin, "overall_volume_mount") }

// CalledCSI observes one call of a CSI driver's method. migrated marks a volume of a former in-tree kind.
func CalledCSI(driver, method, code string, migrated bool, began time.Time) {
	Since(csiTime, began, driver, "/csi.v1.Node/"+method, code, strconv.FormatBool(migrated))
}

// Relisted observes one audit of the runtime; last is when the one before began, zero where there was none.
func Relisted(last, began, ended time.Time) {
	relistTime.WithLabelValues().Observe(ended.Sub(began).Seconds())
	if !last.IsZero() {
		relistInterval.WithLabelValues().Observe(began.Sub(last).Seconds())
	}
	relistSeen.Set(float64(began.Unix()))
}

// maxPulls is of how many pods it is kept when their images were pulled.
const maxPulls = 1024

// pulls are when the images of pods were pulled, from the first one's beginning to the last one's end.
var pulls = struct {
	sync.Mutex
	of map[types.UID][2]time.Time
}{of: map[types.UID][2]time.Time{}}

// PulledFor records a pull that a pod waited for. At maxPulls records, all earlier ones are dropped.
func PulledFor(pod types.UID, began, ended time.Time) {
	pulls.Lock()
	defer pulls.Unlock()
	if had, ok := pulls.of[pod]; ok && had[0].Before(began) {
		began = had[0]
	} else if !ok && len(pulls.of) >= maxPulls {
		clear(pulls.of)
	}
	pulls.of[pod] = [2]time.Time{began, ended}
}

// TakePull is how long images of a pod were pulled, and forgets it.
func TakePull(pod types.UID) time.Duration {
	pulls.Lock()
	defer pulls.Unlock()
	defer delete(pulls.of, pod)
	return pulls.of[pod][1].Sub(pulls.of[pod][0])
}

// imageSizes are the values of the label image_size_in_bytes with their lower bounds in MiB, largest first.
var imageSizes = []struct {
	above uint64
	label string
}{
	{100 << 10, "GT100GB"}, {60 << 10, "60GB-100GB"}, {40 << 10, "40GB-60GB"}, {30 << 10, "30GB-40GB"}, {20 << 10, "20GB-30GB"},
	{10 << 10, "10GB-20GB"}, {5 << 10, "5GB-10GB"}, {1 << 10, "1GB-5GB"}, {500, "500MB-1GB"}, {100, "100MB-500MB"},
	{10, "10MB-100MB"}, {0, "0-10MB"},
}

// Pulled observes a pull of an image of so many bytes; 0 where that is not known.
func Pulled(size uint64, took time.Duration) {
	label := "N/A"
	for _, s := range imageSizes {
		if size > s.above<<20 {
			label = s.label
			break
		}
	}
	pullTime.WithLabelValues(label).Observe(took.Seconds())
}

// CountImageVolumes counts the volumes of a container that are images, and whether the runtime has mounted them; err is
// CreateContainer's.
func CountImageVolumes(n int, err error) {
	imageVolumes.WithLabelValues().Add(float64(n))
	if errors.Is(err, crierrors.ErrImageVolumeMountFailed) {
		imageVolumesFailed.WithLabelValues().Add(float64(n))
	} else {
		imageVolumesThere.WithLabelValues().Add(float64(n))
	}
}
