package agentmetrics

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
	"github.com/playlet-dev/playlet/messages"
)

// boardView collects the families that follow from the board's current state.
type boardView struct{ m *Metrics }

var (
	nodeName          = desc("kubelet_node_name", "Name of the node; the value is always 1.", "node")
	runningPods       = desc("kubelet_running_pods", "Pods with a running sandbox.")
	runningContainers = desc("kubelet_running_containers", "Containers, by state.", "container_state")
	desiredPods       = desc("kubelet_desired_pods", "Pods that this node should run.", "static")
	activePods        = desc("kubelet_active_pods", "Pods that have not finished.", "static")
	workingPods       = desc("kubelet_working_pods", "Pods that have an actor, by the operation in progress.",
		"lifecycle", "config", "static")
	pendingResizes = desc("kubelet_pod_pending_resizes", "Pods with a pending resize, by reason.",
		"reason")
	activeResizes = desc("kubelet_pod_in_progress_resizes", "Pods with a resize in progress.")

	ephemeral     = desc("kubelet_managed_ephemeral_containers", "Ephemeral containers in this node's pods.")
	cgroupVersion = desc("kubelet_cgroup_version", "cgroup version of the host.")
	clientExpiry  = desc("kubelet_certificate_manager_client_ttl_seconds",
		"Seconds until the client certificate expires; negative if it has expired.")
	servingExpiry = desc("kubelet_certificate_manager_server_ttl_seconds",
		"Seconds until the serving certificate expires; negative if it has expired.")
	buildInfo = desc("kubernetes_build_info", "Kubernetes release that the agent is compatible with; the value is always 1.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform")
	featureEnabled = desc("kubernetes_feature_enabled", "1 if the feature gate is enabled, else 0.", "name", "stage")
	provider       = desc("kubelet_metrics_provider", "Provider of container statistics; the value is always 1.", "provider")
	totalVolumes   = desc("volume_manager_total_volumes", "Pod volumes, by plugin and by state: desired or mounted.",
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
		runtime.GOOS+"/"+runtime.GOARCH) // without commit and date, since this is not a build of Kubernetes
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
		for s := range podspec.Statuses(p.Status) {
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

// countResizes adds a pod's pending resize, by reason, to pending, and returns the number of its resizes in progress.
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

// lifecycle returns the kubelet's term for the phase of a pod's actor.
func lifecycle(phase string) string {
	switch phase {
	case "terminating":
		return "terminating"
	case "cleaning", "finished":
		return "terminated"
	}
	return "sync"
}

// volumeStates returns the kubelet's terms for a pod's volumes by the phase of its actor: containers start when all are mounted,
// and none is unmounted before they have ended.
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
