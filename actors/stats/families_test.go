package stats

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// documented lists the families that Kubernetes 1.36 documents for the kubelet: name, type, path and labels.
//
//go:embed testdata/families1.36.3
var documented string

// absent lists the documented families that are missing here, by reason. A name that ends with * is a prefix.
var absent = map[string]string{
	"the node's runtime of pods is watched by events and audits: nothing is discarded, and there is no relisting by pod": "kubelet_pleg_discard_events",
	"there is one stream of events, whose loss health tells":                                                             "kubelet_evented_pleg_*",
	"records of pulls are read from the disk, without a cache": `kubelet_imagemanager_inmemory_pulledrecords_usage_percent
		kubelet_imagemanager_inmemory_pullintents_usage_percent`,
	"an image that is pulled always is not looked for before":    "kubelet_image_manager_ensure_image_requests_total",
	"the health of volumes is an alpha feature, CSIVolumeHealth": "kubelet_volume_stats_health_status_abnormal",
	"how long figures of volumes take, and how many plugins are registered, is not counted": `kubelet_volume_metric_collection_duration_seconds
		plugin_manager_total_plugins`,
	"volumes are found on the disk with every unmount, and nothing is reconstructed at the start": `reconstruct_volume_operations_*
		force_cleaned_failed_volume_operation*`,
	"volumes are not labelled for SELinux":                                                        "volume_manager_selinux_*",
	"what is left of gone pods is a driver's sweep, whose failures are in health and tried again": "kubelet_orphan_pod_cleaned_volumes*",
	"it is of Windows": "kubelet_started_host_process_containers_*",
	"watches here are reflectors with stores of their own":          "informer_*",
	"nobody is elected, and no controller manager runs":             "leader_election_* running_managed_controllers",
	"it is hidden since 1.29: resource_scrape_error tells the same": "scrape_error",
	"no other release is emulated: it is kubernetes_build_info":     "version_info",
}

// whenUsed are families of libraries that appear with the first use.
const whenUsed = `rest_client_* workqueue_* hidden_metrics_total registered_metrics_total`

// besides are undocumented families of the Prometheus client and of component-base, as in the kubelet.
const besides = "go_* process_* cardinality_enforcement_unexpected_categorizations_total"

// names reports whether a list includes a name.
func names(list, name string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// exercise triggers every counted event once, and returns the handler.
func exercise(t *testing.T) (*rig, http.Handler) {
	t.Helper()
	now := time.Now()
	started := metav1.NewTime(now.Add(2 * time.Second).Truncate(time.Second))
	web := pod("web", containerID1)
	web.Source, web.Phase = messages.APIServer, "running"
	web.Pod.Spec.Volumes = []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, {Name: "unused"}, claimVolume("data", "claim")}
	web.Pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "a"}}
	web.Pod.CreationTimestamp = metav1.NewTime(started.Add(-time.Minute))
	web.Status.StartTime = &started
	web.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(started.Add(3 * time.Second))
	web.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		StartedAt: started, FinishedAt: metav1.NewTime(started.Add(2 * time.Second))}}}}
	web.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonDeferred}, {Type: v1.PodResizeInProgress}}
	static := pod("static", "")
	static.Source, static.Phase, static.Ending = messages.File, "cleaning", "its manifest is gone"
	r := newRig(t, web, static)
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 9, 1000))
	write(t, r.opts.PodLogsDir+"/default_web_uid-web/c1/0.log", 5000)
	write(t, r.opts.RootDir+"/pods/uid-web/etc-hosts", 1)
	r.opts.Persistent = func(context.Context, *v1.Pod) (map[string]VolumeUsage, error) { return claimUsage, nil }
	m := agentmetrics.New(agentmetrics.Options{NodeName: "node", Board: r.opts.Board, Kubernetes: "1.36.3", Expiry: func() map[string]time.Time {
		return map[string]time.Time{"client": now.Add(time.Hour), "serving": now.Add(-time.Hour)}
	}, Features: []config.Feature{{Name: "AFeature", Stage: "beta", On: true}}})
	m.RuntimeCall(cri.Observation{Call: "RunPodSandbox", Request: &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"}, Took: time.Second})
	m.RuntimeCall(cri.Observation{Call: "RunPodSandbox", Request: &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"}, Took: time.Second, Err: errors.New("no")})
	m.RuntimeCall(cri.Observation{Call: "CreateContainer", Request: &runtimeapi.CreateContainerRequest{}, Took: time.Millisecond})
	metrics.Evictions.WithLabelValues("memory.available").Inc()
	metrics.EvictionAge.WithLabelValues("memory.available").Observe(1)
	metrics.PulledFor("uid-web", started.Add(-50*time.Second), started.Add(-30*time.Second))
	metrics.Refused("OutOfexample.com/gpu")
	metrics.RequestedResizes.WithLabelValues("cpu", "limits", "add").Inc()
	metrics.InfeasibleResizes.WithLabelValues("swap_limitation").Inc()
	metrics.DeferredResizes.WithLabelValues("pod_updated").Inc()
	metrics.Resized(true, 1500*time.Millisecond)
	metrics.Preemptions.WithLabelValues("memory").Inc()
	metrics.StatusChanged(&v1.PodStatus{}, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}}})
	metrics.NotStarted(&v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}}}, "i", messages.ReasonRunContainer)
	metrics.PodRestarted(true)
	metrics.ProviderErrors.WithLabelValues("p").Inc()
	metrics.Since(metrics.ProviderTime, now, "p")
	metrics.SetProviderConfig("sha256:2")
	metrics.RuntimeOutdated(true)
	metrics.PullChecks.WithLabelValues("credentialRecordFound").Inc()
	metrics.PluginRegistrations.WithLabelValues("example.com/gpu").Inc()
	metrics.Since(metrics.PluginAllocation, now, "example.com/gpu")
	metrics.PodResources("v1", "requests_total", "requests_list", "requests_get", "requests_get_allocatable", "errors_list", "errors_get",
		"errors_get_allocatable")
	metrics.Since(metrics.ClaimTime, now, "PrepareResources", "false")
	metrics.Since(metrics.DriverTime, now, "gpu.example.com", "/v1.DRAPlugin/NodePrepareResources", "OK")
	metrics.ClaimsInUse(map[string]int{"<any>": 1})
	metrics.Since(metrics.CgroupTime, now, "create")
	metrics.CPUsAssigned(2, 1, map[int]int{0: 1})
	metrics.Pulled(200<<20, time.Second)
	metrics.CollectedImages.WithLabelValues("space").Inc()
	metrics.Stored("kubernetes.io/empty-dir", "volume_mount", now, errors.New("no"))
	metrics.Mounted("kubernetes.io/empty-dir", now)
	metrics.CalledCSI("disk.example.org", "NodePublishVolume", "OK", false, now)
	metrics.Relisted(now.Add(-time.Minute), now, now.Add(time.Second))
	m.Probed(agentmetrics.Probe{Type: "Readiness", Result: "failed", UID: "uid-web", Namespace: "default", Pod: "web", Container: "c1",
		Took: time.Millisecond})
	h := Handler(r.Collector, m)
	m.Checked("ping", true)
	m.Register(metrics.PodCertificates(func() map[[2]string]int { return map[[2]string]int{{"example.org/a", "fresh"}: 1} }))
	m.HTTP("readwrite", h).ServeHTTP(nopWriter{}, mustRequest(t, "/metrics/nothing/of/this"))
	r.Summary(t.Context(), false)
	return r, h
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

// Each documented family is served with its type and labels, or listed as absent with a reason; and each served family is
// documented.
func TestFamilies(t *testing.T) {
	_, h := exercise(t)
	got := map[string]*dto.MetricFamily{}
	for _, at := range []string{"/metrics", "/metrics/probes", "/metrics/resource", "/metrics/slis"} {
		for name, f := range families(t, get(t, h, at).Body.String()) {
			got[at+" "+name] = f
		}
	}
	said, missing := map[string]bool{}, 0
	for line := range strings.Lines(documented) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		name, kind, at, labels := words[0], words[1], words[2], words[3]
		f := got[at+" "+name]
		delete(got, at+" "+name)
		why := ""
		for reason, list := range absent {
			if names(list, name) {
				why = reason
				said[reason] = true
			}
		}
		switch {
		case why != "":
			missing++
			if f != nil {
				t.Errorf("%s is there, and it is said that not, since %s", name, why)
			}
		case f == nil && !names(whenUsed, name):
			t.Errorf("%s is not there, and it is not said why", name)
		case f != nil:
			if is := strings.ToLower(f.GetType().String()); kind != "custom" && kind != is {
				t.Errorf("%s is a %s, and the kubelet's is a %s", name, is, kind)
			}
			var have []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				have = append(have, l.GetName())
			}
			slices.Sort(have)
			if is := cmp.Or(strings.Join(have, ","), "-"); is != labels {
				t.Errorf("%s has the labels %s, and the kubelet's has %s", name, is, labels)
			}
		}
	}
	for of := range got {
		if _, name, _ := strings.Cut(of, " "); !names(besides, name) {
			t.Errorf("%s is not documented", of)
		}
	}
	for reason := range absent {
		if !said[reason] {
			t.Errorf("a reason for nothing: %s", reason)
		}
	}
	t.Logf("%d families are not there", missing)
}

// TestCounting checks the values of the families.
func TestCounting(t *testing.T) {
	r, h := exercise(t)
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
		"kubelet_running_containers":              {{map[string]string{"container_state": "running"}, 1}, {map[string]string{"container_state": "exited"}, 2}},
		"kubelet_desired_pods":                    {{map[string]string{"static": "true"}, 0}, {map[string]string{"static": ""}, 1}},
		"kubelet_working_pods":                    {{map[string]string{"lifecycle": "terminated", "static": "true"}, 1}},
		"kubelet_node_name":                       {{map[string]string{"node": "node"}, 1}},
		"kubelet_http_requests_total":             {{map[string]string{"path": "other", "server_type": "readwrite", "long_running": "false"}, 1}},
		"kubernetes_feature_enabled":              {{map[string]string{"name": "AFeature", "stage": "BETA"}, 1}},
		"volume_manager_total_volumes": {
			{map[string]string{"plugin_name": "kubernetes.io/empty-dir", "state": "desired_state_of_world"}, 1},
			{map[string]string{"plugin_name": "kubernetes.io/empty-dir", "state": "actual_state_of_world"}, 1}},
		"kubelet_cpu_manager_shared_pool_size_millicores":      {{nil, 2000}},
		"kubelet_cpu_manager_allocation_per_numa":              {{map[string]string{"numa_node": "0"}, 1}},
		"kubelet_pod_pending_resizes":                          {{map[string]string{"reason": "deferred"}, 1}},
		"kubelet_pod_in_progress_resizes":                      {{nil, 1}},
		"kubelet_credential_provider_config_info":              {{map[string]string{"hash": "sha256:2"}, 1}},
		"kubelet_first_network_pod_start_sli_duration_seconds": {{nil, 41}},
		"kubernetes_build_info":                                {{map[string]string{"major": "1", "minor": "36", "git_version": "v1.36.3"}, 1}},
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
	if h := sample(t, all, "kubelet_pod_resize_duration_milliseconds", map[string]string{"success": "true"}).GetHistogram(); h.GetSampleSum() < 1500 ||
		len(h.GetBucket()) != 15 || h.GetBucket()[0].GetUpperBound() != 10 || h.GetBucket()[13].GetUpperBound() != 600_000 {
		t.Errorf("resizes took %v", h)
	}
	for range 2 { // each pod's start is observed once
		all = families(t, get(t, h, "/metrics").Body.String())
	}
	start := sample(t, all, "kubelet_pod_start_duration_seconds", nil).GetHistogram()
	total := sample(t, all, "kubelet_pod_start_total_duration_seconds", nil).GetHistogram()
	own := sample(t, all, "kubelet_pod_start_sli_duration_seconds", nil).GetHistogram() // less 20 s of pulls and 2 s of init
	if start.GetSampleCount() != 1 || start.GetSampleSum() != 3 || total.GetSampleSum() != 63 || own.GetSampleSum() != 41 {
		t.Errorf("starts: %v, since creation %v, its own %v", start, total, own)
	}
	of := map[string]string{"probe_type": "Readiness", "result": "failed", "pod_uid": "uid-web", "container": "c1", "namespace": "default"}
	if n := sample(t, families(t, get(t, h, "/metrics/probes").Body.String()), "prober_probe_total", of).GetCounter().GetValue(); n != 1 {
		t.Errorf("%v probes", n)
	}
	r.opts.Board.Publish(board.Snapshot{})
	left := families(t, get(t, h, "/metrics/probes").Body.String())
	if _, ok := left["process_start_time_seconds"]; !ok || len(left) != 1 {
		t.Errorf("of pods that are gone: %v", left)
	}
}
