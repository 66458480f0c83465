package stats

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// Why families of the kubelet are not there.
const (
	here       = ""
	noLoop     = "pods are actors that act when something happens: there is no sync loop or worker whose rounds could be timed"
	noPLEG     = "the runtime's events are read, and its audit is no relisting; health tells of one that is overdue"
	noEviction = "nothing is evicted yet"
	noDevices  = "there are no device plugins and no pod resources API yet"
	noDRA      = "there is no dynamic resource allocation yet"
	noPlacing  = "there are no CPU, memory and topology managers yet"
	noGC       = "images are not collected yet"
	noClaims   = "volumes of claims are not mounted yet"
	noResize   = "pods are not resized in place yet"
	noShutdown = "there is no graceful shutdown of the node yet"
	noProvider = "there are no credential providers yet"
	windows    = "it is of Windows"
	notCounted = "nobody counts it yet"
	notTold    = "the operations of volumes and cgroups are not timed; their failures are in events and in health"
	startup    = "the time of a start's parts is not kept; the log has it"
)

// families1_36 are the kubelet's own families as Kubernetes 1.36 documents them
// (kubernetes.io/docs/reference/instrumentation/metrics), with the reason why one is not there.
var families1_36 = map[string]string{
	"kubelet_active_pods":                                        here,
	"kubelet_admission_rejections_total":                         notCounted,
	"kubelet_certificate_manager_client_expiration_renew_errors": notCounted,
	"kubelet_certificate_manager_client_ttl_seconds":             here,
	"kubelet_certificate_manager_server_rotation_seconds":        notCounted,
	"kubelet_certificate_manager_server_ttl_seconds":             here,
	"kubelet_cgroup_manager_duration_seconds":                    notTold,
	"kubelet_cgroup_version":                                     here,
	"kubelet_container_aligned_compute_resources_count":          noPlacing,
	"kubelet_container_log_filesystem_used_bytes":                here,
	"kubelet_containers_per_pod_count":                           here,
	"kubelet_cpu_manager_pinning_errors_total":                   noPlacing,
	"kubelet_cpu_manager_pinning_requests_total":                 noPlacing,
	"kubelet_cpu_manager_shared_pool_size_millicores":            noPlacing,
	"kubelet_credential_provider_plugin_duration":                noProvider,
	"kubelet_credential_provider_plugin_errors":                  noProvider,
	"kubelet_desired_pods":                                       here,
	"kubelet_device_plugin_alloc_duration_seconds":               noDevices,
	"kubelet_device_plugin_registration_total":                   noDevices,
	"kubelet_evented_pleg_connection_error_count":                noPLEG,
	"kubelet_evented_pleg_connection_latency_seconds":            noPLEG,
	"kubelet_evented_pleg_connection_success_count":              noPLEG,
	"kubelet_eviction_stats_age_seconds":                         noEviction,
	"kubelet_evictions":                                          noEviction,
	"kubelet_graceful_shutdown_end_time_seconds":                 noShutdown,
	"kubelet_graceful_shutdown_start_time_seconds":               noShutdown,
	"kubelet_http_inflight_requests":                             here,
	"kubelet_http_requests_duration_seconds":                     here,
	"kubelet_http_requests_total":                                here,
	"kubelet_image_garbage_collected_total":                      noGC,
	"kubelet_image_pull_duration_seconds":                        notCounted,
	"kubelet_lifecycle_handler_http_fallbacks_total":             notCounted,
	"kubelet_managed_ephemeral_containers":                       here,
	"kubelet_memory_manager_pinning_errors_total":                noPlacing,
	"kubelet_memory_manager_pinning_requests_total":              noPlacing,
	"kubelet_mirror_pods":                                        "which pods have mirror pods, status alone knows; their number is kubelet_desired_pods{static=\"true\"}",
	"kubelet_node_name":                                          here,
	"kubelet_node_startup_duration_seconds":                      startup,
	"kubelet_node_startup_post_registration_duration_seconds":    startup,
	"kubelet_node_startup_pre_kubelet_duration_seconds":          startup,
	"kubelet_node_startup_pre_registration_duration_seconds":     startup,
	"kubelet_node_startup_registration_duration_seconds":         startup,
	"kubelet_orphan_pod_cleaned_volumes":                         notTold,
	"kubelet_orphan_pod_cleaned_volumes_errors":                  notTold,
	"kubelet_orphaned_runtime_pods_total":                        notCounted,
	"kubelet_pleg_discard_events":                                noPLEG,
	"kubelet_pleg_last_seen_seconds":                             noPLEG,
	"kubelet_pleg_relist_duration_seconds":                       noPLEG,
	"kubelet_pleg_relist_interval_seconds":                       noPLEG,
	"kubelet_pod_resources_endpoint_errors_get":                  noDevices,
	"kubelet_pod_resources_endpoint_errors_get_allocatable":      noDevices,
	"kubelet_pod_resources_endpoint_errors_list":                 noDevices,
	"kubelet_pod_resources_endpoint_requests_get":                noDevices,
	"kubelet_pod_resources_endpoint_requests_get_allocatable":    noDevices,
	"kubelet_pod_resources_endpoint_requests_list":               noDevices,
	"kubelet_pod_resources_endpoint_requests_total":              noDevices,
	"kubelet_pod_start_duration_seconds":                         here,
	"kubelet_pod_start_sli_duration_seconds":                     "how long images were pulled is not kept with a pod, and it excludes that",
	"kubelet_pod_start_total_duration_seconds":                   here,
	"kubelet_pod_status_sync_duration_seconds":                   notCounted,
	"kubelet_pod_worker_duration_seconds":                        noLoop,
	"kubelet_pod_worker_start_duration_seconds":                  noLoop,
	"kubelet_preemptions":                                        notCounted,
	"kubelet_restarted_pods_total":                               notCounted,
	"kubelet_run_podsandbox_duration_seconds":                    here,
	"kubelet_run_podsandbox_errors_total":                        here,
	"kubelet_running_containers":                                 here,
	"kubelet_running_pods":                                       here,
	"kubelet_runtime_operations_duration_seconds":                here,
	"kubelet_runtime_operations_errors_total":                    here,
	"kubelet_runtime_operations_total":                           here,
	"kubelet_server_expiration_renew_errors":                     notCounted,
	"kubelet_sleep_action_terminated_early_total":                notCounted,
	"kubelet_started_containers_errors_total":                    "a container's start fails in calls that do not tell its type",
	"kubelet_started_containers_total":                           here,
	"kubelet_started_host_process_containers_errors_total":       windows,
	"kubelet_started_host_process_containers_total":              windows,
	"kubelet_started_pods_errors_total":                          here,
	"kubelet_started_pods_total":                                 here,
	"kubelet_topology_manager_admission_duration_ms":             noPlacing,
	"kubelet_topology_manager_admission_errors_total":            noPlacing,
	"kubelet_topology_manager_admission_requests_total":          noPlacing,
	"kubelet_volume_metric_collection_duration_seconds":          notTold,
	"kubelet_volume_stats_available_bytes":                       noClaims,
	"kubelet_volume_stats_capacity_bytes":                        noClaims,
	"kubelet_volume_stats_health_status_abnormal":                noClaims,
	"kubelet_volume_stats_inodes":                                noClaims,
	"kubelet_volume_stats_inodes_free":                           noClaims,
	"kubelet_volume_stats_inodes_used":                           noClaims,
	"kubelet_volume_stats_used_bytes":                            noClaims,
	"kubelet_working_pods":                                       here,
	"kubelet_pod_resize_duration_milliseconds":                   noResize,
	"kubelet_pod_infeasible_resizes_total":                       noResize,
	"kubelet_dra_operations_duration_seconds":                    noDRA,
	"kubelet_dra_grpc_operations_duration_seconds":               noDRA,
	"kubernetes_build_info":                                      here,
	"kubernetes_healthcheck":                                     here,
	"kubernetes_healthchecks_total":                              here,
	"prober_probe_duration_seconds":                              here,
	"prober_probe_total":                                         here,
	"pod_swap_usage_bytes":                                       here,
	"rest_client_request_duration_seconds":                       here,
	"rest_client_requests_total":                                 here,
	"process_cpu_seconds_total":                                  here,
	"process_resident_memory_bytes":                              here,
	"process_start_time_seconds":                                 here,
	"go_goroutines":                                              here,
	"storage_operation_duration_seconds":                         notTold,
	"volume_manager_total_volumes":                               notTold,
	"plugin_manager_total_plugins":                               "plugins are not registered yet",
	"node_cpu_usage_seconds_total":                               here,
	"node_memory_working_set_bytes":                              here,
	"node_swap_usage_bytes":                                      here,
	"container_cpu_usage_seconds_total":                          here,
	"container_memory_working_set_bytes":                         here,
	"container_start_time_seconds":                               here,
	"container_swap_usage_bytes":                                 here,
	"container_swap_limit_bytes":                                 here,
	"pod_cpu_usage_seconds_total":                                here,
	"pod_memory_working_set_bytes":                               here,
	"scrape_error":                                               here,
	"resource_scrape_error":                                      here,
}

// exercise has everything happen once that is counted, and gives the handler.
func exercise(t *testing.T) (*rig, *Metrics, http.Handler) {
	t.Helper()
	now := time.Now()
	started := metav1.NewTime(now.Add(2 * time.Second).Truncate(time.Second))
	web := pod("web", containerID1)
	web.Source, web.Phase = messages.APIServer, "running"
	web.Pod.CreationTimestamp = metav1.NewTime(started.Add(-time.Minute))
	web.Status.StartTime = &started
	web.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(started.Add(3 * time.Second))
	static := pod("static", "")
	static.Source, static.Phase, static.Ending = messages.File, "cleaning", "its manifest is gone"
	r := newRig(t, web, static)
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	write(t, r.opts.PodLogsDir+"/default_web_uid-web/c1/0.log", 5000)
	m := NewMetrics(MetricsOptions{NodeName: "node", Board: r.opts.Board, Kubernetes: "1.36.3", Expiry: func() map[string]time.Time {
		return map[string]time.Time{"client": now.Add(time.Hour), "serving": now.Add(-time.Hour)}
	}})
	m.RuntimeCall("RunPodSandbox", &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"}, time.Second, nil)
	m.RuntimeCall("RunPodSandbox", &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"}, time.Second, errors.New("no"))
	m.RuntimeCall("CreateContainer", &runtimeapi.CreateContainerRequest{}, time.Millisecond, nil)
	m.Probed(Probe{"Readiness", "failed", "uid-web", "default", "web", "c1", time.Millisecond})
	h := Handler(r.Collector, m)
	m.Checked("ping", true)
	m.HTTP("readwrite", h).ServeHTTP(nopWriter{}, mustRequest(t, "/metrics/nothing/of/this"))
	r.Summary(t.Context(), false)
	return r, m, h
}

type nopWriter struct{}

func (nopWriter) Header() http.Header         { return http.Header{} }
func (nopWriter) Write(b []byte) (int, error) { return len(b), nil }
func (nopWriter) WriteHeader(int)             {}

func mustRequest(t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each family that the kubelet documents is there, or the table says why not; and the table knows all that are there.
func TestFamilies(t *testing.T) {
	_, _, h := exercise(t)
	got := map[string]bool{}
	for _, path := range []string{"/metrics", "/metrics/probes", "/metrics/resource", "/metrics/slis"} {
		for name := range families(t, get(t, h, path).Body.String()) {
			got[name] = true
		}
	}
	absent := 0
	for name, why := range families1_36 {
		if why != here {
			absent++
		}
		if strings.HasPrefix(name, "rest_client") {
			continue // they come with the first request to an API server
		}
		if got[name] != (why == here) {
			t.Errorf("%s: there %v, and the table says %q", name, got[name], why)
		}
	}
	for name := range got {
		if _, known := families1_36[name]; !known && (strings.HasPrefix(name, "kubelet_") || strings.HasPrefix(name, "prober_")) {
			t.Errorf("%s is not in the table", name)
		}
	}
	t.Logf("%d families, %d of them not there", len(families1_36), absent)
}

// What the families say.
func TestCounting(t *testing.T) {
	r, m, h := exercise(t)
	all := families(t, get(t, h, "/metrics").Body.String())
	for name, tests := range map[string][]struct {
		labels map[string]string
		want   float64
	}{
		"kubelet_runtime_operations_total":        {{map[string]string{"operation_type": "run_podsandbox"}, 2}, {map[string]string{"operation_type": "create_container"}, 1}},
		"kubelet_runtime_operations_errors_total": {{map[string]string{"operation_type": "run_podsandbox"}, 1}},
		"kubelet_run_podsandbox_errors_total":     {{map[string]string{"runtime_handler": "kata"}, 1}},
		"kubelet_started_pods_total":              {{nil, 2}},
		"kubelet_started_containers_total":        {{map[string]string{"container_type": "container"}, 1}},
		"kubelet_running_pods":                    {{nil, 1}},
		"kubelet_running_containers":              {{map[string]string{"container_state": "running"}, 1}, {map[string]string{"container_state": "exited"}, 1}},
		"kubelet_desired_pods":                    {{map[string]string{"static": "true"}, 0}, {map[string]string{"static": ""}, 1}},
		"kubelet_working_pods":                    {{map[string]string{"lifecycle": "terminated", "static": "true"}, 1}},
		"kubelet_node_name":                       {{map[string]string{"node": "node"}, 1}},
		"kubelet_http_requests_total":             {{map[string]string{"path": "metrics", "server_type": "readwrite", "long_running": "false"}, 1}},
		"kubernetes_build_info":                   {{map[string]string{"major": "1", "minor": "36", "git_version": "v1.36.3"}, 1}},
	} {
		for _, test := range tests {
			s := sample(t, all, name, test.labels)
			if got := s.GetCounter().GetValue() + s.GetGauge().GetValue(); got != test.want {
				t.Errorf("%s%v: %v, want %v", name, test.labels, got, test.want)
			}
		}
	}
	if s := sample(t, all, "kubelet_certificate_manager_server_ttl_seconds", nil); s.GetGauge().GetValue() > 0 {
		t.Error("the serving certificate has ended")
	}
	for range 2 { // each pod's start is observed once
		all = families(t, get(t, h, "/metrics").Body.String())
	}
	start := sample(t, all, "kubelet_pod_start_duration_seconds", nil).GetHistogram()
	total := sample(t, all, "kubelet_pod_start_total_duration_seconds", nil).GetHistogram()
	if start.GetSampleCount() != 1 || start.GetSampleSum() != 3 || total.GetSampleSum() != 63 {
		t.Errorf("starts: %v, since creation %v", start, total)
	}
	of := map[string]string{"probe_type": "Readiness", "result": "failed", "pod_uid": "uid-web", "container": "c1", "namespace": "default"}
	if n := sample(t, families(t, get(t, h, "/metrics/probes").Body.String()), "prober_probe_total", of).GetCounter().GetValue(); n != 1 {
		t.Errorf("%v probes", n)
	}
	r.opts.Board.Publish(board.Snapshot{})
	if left := families(t, get(t, h, "/metrics/probes").Body.String()); len(left) != 0 {
		t.Errorf("of pods that are gone: %v", left)
	}
	for i := range 3 * maxProbed { // nobody reads
		m.Probed(Probe{"Liveness", "failed", types.UID("u" + strings.Repeat("x", i%7) + time.Duration(i).String()), "n", "p", "c", 0})
	}
	if n := len(m.probed); n > maxProbed+1 {
		t.Errorf("labels of %d pods are kept", n)
	}
}

func TestContainerTypes(t *testing.T) {
	p := pod("web", containerID1)
	p.Pod.Spec.InitContainers = []v1.Container{{Name: "i"}}
	p.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}}
	r := newRig(t, p)
	m := NewMetrics(MetricsOptions{Board: r.opts.Board})
	for name, want := range map[string]string{"i": "init_container", "e": "ephemeral_container", "c1": "container", "other": "container"} {
		if got := m.containerType("uid-web", name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for call, want := range map[string]string{
		"ListPodSandbox": "list_podsandbox", "UpdateContainerResources": "update_container", "ImageFsInfo": "image_fs_info",
		"ExecSync": "exec_sync", "PodSandboxStatus": "podsandbox_status",
	} {
		if got := operation(call); got != want {
			t.Errorf("%s: %s", call, got)
		}
	}
}
