package config

import (
	"cmp"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// DefaultEvictionHard returns the hard eviction thresholds of a Linux node that names none itself.
func DefaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// plainDefaults are those that depend on nothing else, as kubelet.config.k8s.io/v1beta1 documents them for Kubernetes 1.36.
const plainDefaults = `{
	# Sources of pods.
	syncFrequency: 1m, fileCheckFrequency: 20s, httpCheckFrequency: 20s, configMapAndSecretChangeDetectionStrategy: Watch,
	# The served API.
	enableServer: true, address: 0.0.0.0, port: 10250, healthzPort: 10248, healthzBindAddress: 127.0.0.1,
	enableDebuggingHandlers: true, enableProfilingHandler: true, enableDebugFlagsHandler: true, enableSystemLogHandler: true,
	streamingConnectionIdleTimeout: 4h,
	authentication: {anonymous: {enabled: false}, webhook: {enabled: true, cacheTTL: 2m}},
	authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 5m, cacheUnauthorizedTTL: 30s}},
	# The API server and the Node.
	registerNode: true, eventRecordQPS: 50, eventBurst: 100, nodeStatusUpdateFrequency: 10s, nodeLeaseDurationSeconds: 40,
	nodeStatusMaxImages: 50, contentType: application/vnd.kubernetes.protobuf, kubeAPIQPS: 50, kubeAPIBurst: 100,
	# Containers, images, logs and volumes.
	containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock", runtimeRequestTimeout: 2m, seccompDefault: false,
	registryPullQPS: 5, registryBurst: 10,
	imageMinimumGCAge: 2m, imageGCHighThresholdPercent: 85, imageGCLowThresholdPercent: 80,
	podLogsDir: /var/log/pods, containerLogMaxSize: 10Mi, containerLogMaxFiles: 5, containerLogMaxWorkers: 1,
	containerLogMonitorInterval: 10s,
	volumeStatsAggPeriod: 1m, enableControllerAttachDetach: true,
	volumePluginDir: /usr/libexec/kubernetes/kubelet-plugins/volume/exec/,
	# Resources.
	cgroupsPerQOS: true, cgroupDriver: cgroupfs, cpuManagerPolicy: none, cpuManagerReconcilePeriod: 10s,
	memoryManagerPolicy: None, topologyManagerPolicy: none, topologyManagerScope: container, maxPods: 110, podPidsLimit: -1,
	cpuCFSQuota: true, cpuCFSQuotaPeriod: 100ms, failSwapOn: true, failCgroupV1: true, memoryThrottlingFactor: 0.9,
	memoryReservationPolicy: None, localStorageCapacityIsolation: true, enforceNodeAllocatable: [pods],
	evictionPressureTransitionPeriod: 5m, mergeDefaultEvictionSettings: false, oomScoreAdj: -999, maxOpenFiles: 1000000,
	# The network of pods.
	hairpinMode: promiscuous-bridge, resolvConf: /etc/resolv.conf,
	makeIPTablesUtilChains: true, iptablesMasqueradeBit: 14, iptablesDropBit: 15,
}`

// setDefaults sets unset fields. Some fields have a default only while their feature gate is on.
func setDefaults(c *KubeletConfiguration, gates map[string]bool) {
	var d KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(plainDefaults), &d); err != nil {
		panic(err) // of a constant; every test sees it
	}
	// Asking for parallel pulls is answer enough to whether they are serial.
	d.SerializeImagePulls = ptr.To(ptr.Deref(c.MaxParallelImagePulls, 1) < 2)
	// Before there were two periods, NodeStatusUpdateFrequency set both, so an explicit value still does.
	d.NodeStatusReportFrequency.Duration = cmp.Or(c.NodeStatusUpdateFrequency.Duration, 5*time.Minute)
	if gates["KubeletEnsureSecretPulledImages"] {
		d.ImagePullCredentialsVerificationPolicy = kubeletconfig.NeverVerifyPreloadedImages
	}
	if gates["KubeletCrashLoopBackOffMax"] {
		d.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: crashBackOffMax}
	}
	fill(reflect.ValueOf(c).Elem(), reflect.ValueOf(d))
	if *c.PodPidsLimit < 0 {
		*c.PodPidsLimit = -1
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

// fill sets the fields of a struct that are zero or absent. Zero behind a pointer, or an empty list, is a decision and stays.
func fill(to, defaults reflect.Value) {
	for i := range to.NumField() {
		switch field, value := to.Field(i), defaults.Field(i); {
		case value.IsZero():
		case field.Kind() == reflect.Struct:
			fill(field, value)
		case field.IsZero():
			field.Set(value)
		}
	}
}

// defaultEviction fills in the hard thresholds. Apart from the other defaults because it happens once, to the base: a
// drop-in that names one threshold then changes that one and keeps the rest.
func defaultEviction(c *KubeletConfiguration) {
	if c.EvictionHard == nil {
		c.EvictionHard = DefaultEvictionHard()
		return
	}
	if c.MergeDefaultEvictionSettings == nil || !*c.MergeDefaultEvictionSettings {
		return
	}
	for signal, threshold := range DefaultEvictionHard() {
		if _, named := c.EvictionHard[signal]; !named {
			c.EvictionHard[signal] = threshold
		}
	}
}

// defaultConfiguration returns the configuration of an empty file, and the base for flags without --config. In the latter
// case the kubelet has older defaults for its server: anonymous requests, AlwaysAllow and port 10255. Playlet does not:
// access must be granted explicitly.
func defaultConfiguration(gates map[string]bool) *KubeletConfiguration {
	c := &KubeletConfiguration{}
	setDefaults(c, gates)
	defaultEviction(c)
	return c
}
