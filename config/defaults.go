package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Defaults that other code compares with.
const (
	// DefaultRuntimeEndpoint is containerd's socket.
	DefaultRuntimeEndpoint = "unix:///run/containerd/containerd.sock"
	// DefaultPodLogsDir is where the runtime writes container logs, one folder a pod.
	DefaultPodLogsDir = "/var/log/pods"
	// defaultReadOnlyPort is the command line's default; in a file the port is off.
	defaultReadOnlyPort = 10255
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

// orValue sets a field that still has its zero value.
func orValue[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// orPointer sets a field that is absent; zero behind a pointer is a decision and stays.
func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// orDuration sets a duration that is zero.
func orDuration(field *metav1.Duration, value time.Duration) { orValue(&field.Duration, value) }

// setDefaults fills in what c leaves open, as kubelet.config.k8s.io/v1beta1 documents it for Kubernetes 1.36. The gates
// decide about fields that are only allowed while their feature is on.
func setDefaults(c *KubeletConfiguration, gates map[string]bool) {
	defaultSources(c)
	defaultServer(c)
	defaultAuth(c)
	defaultImages(c, gates)
	defaultReporting(c)
	defaultResources(c)
	defaultNetwork(c)
	defaultContainers(c, gates)
	defaultProcess(c)
}

func defaultSources(c *KubeletConfiguration) {
	orDuration(&c.SyncFrequency, time.Minute)
	orDuration(&c.FileCheckFrequency, 20*time.Second)
	orDuration(&c.HTTPCheckFrequency, 20*time.Second)
	orValue(&c.ConfigMapAndSecretChangeDetectionStrategy, kubeletconfig.WatchChangeDetectionStrategy)
}

func defaultServer(c *KubeletConfiguration) {
	orPointer(&c.EnableServer, true)
	orValue(&c.Address, "0.0.0.0")
	orValue(&c.Port, 10250)
	orPointer(&c.HealthzPort, 10248)
	orValue(&c.HealthzBindAddress, "127.0.0.1")
	orPointer(&c.EnableDebuggingHandlers, true)
	orPointer(&c.EnableProfilingHandler, true)
	orPointer(&c.EnableDebugFlagsHandler, true)
	orPointer(&c.EnableSystemLogHandler, true)
	orDuration(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
}

func defaultAuth(c *KubeletConfiguration) {
	orPointer(&c.Authentication.Anonymous.Enabled, false)
	orPointer(&c.Authentication.Webhook.Enabled, true)
	orDuration(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	orValue(&c.Authorization.Mode, kubeletconfig.KubeletAuthorizationModeWebhook)
	orDuration(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDuration(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
}

func defaultImages(c *KubeletConfiguration, gates map[string]bool) {
	orPointer(&c.RegistryPullQPS, 5)
	orValue(&c.RegistryBurst, 10)
	orDuration(&c.ImageMinimumGCAge, 2*time.Minute)
	orPointer(&c.ImageGCHighThresholdPercent, 85)
	orPointer(&c.ImageGCLowThresholdPercent, 80)
	// Asking for parallel pulls is answer enough to whether they are serial.
	orPointer(&c.SerializeImagePulls, c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2)
	if gates["KubeletEnsureSecretPulledImages"] {
		orValue(&c.ImagePullCredentialsVerificationPolicy, kubeletconfig.NeverVerifyPreloadedImages)
	}
}

func defaultReporting(c *KubeletConfiguration) {
	orPointer(&c.RegisterNode, true)
	orPointer(&c.EventRecordQPS, 50)
	orValue(&c.EventBurst, 100)
	// Who sets how often the status is computed has, from before there were two periods, set how often it is sent.
	report := 5 * time.Minute
	if c.NodeStatusUpdateFrequency.Duration != 0 {
		report = c.NodeStatusUpdateFrequency.Duration
	}
	orDuration(&c.NodeStatusReportFrequency, report)
	orDuration(&c.NodeStatusUpdateFrequency, 10*time.Second)
	orValue(&c.NodeLeaseDurationSeconds, 40)
	orPointer(&c.NodeStatusMaxImages, 50)
	orDuration(&c.VolumeStatsAggPeriod, time.Minute)
	orValue(&c.ContentType, "application/vnd.kubernetes.protobuf")
	orPointer(&c.KubeAPIQPS, 50)
	orValue(&c.KubeAPIBurst, 100)
}

func defaultResources(c *KubeletConfiguration) {
	orPointer(&c.CgroupsPerQOS, true)
	orValue(&c.CgroupDriver, "cgroupfs")
	orValue(&c.CPUManagerPolicy, "none")
	orDuration(&c.CPUManagerReconcilePeriod, 10*time.Second)
	orValue(&c.MemoryManagerPolicy, kubeletconfig.NoneMemoryManagerPolicy)
	orValue(&c.TopologyManagerPolicy, kubeletconfig.NoneTopologyManagerPolicy)
	orValue(&c.TopologyManagerScope, kubeletconfig.ContainerTopologyManagerScope)
	orValue(&c.MaxPods, 110)
	if c.PodPidsLimit == nil || *c.PodPidsLimit < 0 {
		unlimited := int64(-1)
		c.PodPidsLimit = &unlimited
	}
	orPointer(&c.CPUCFSQuota, true)
	orPointer(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	orPointer(&c.FailSwapOn, true)
	orPointer(&c.FailCgroupV1, true)
	orPointer(&c.MemoryThrottlingFactor, 0.9)
	orValue(&c.MemoryReservationPolicy, kubeletconfig.NoneMemoryReservationPolicy)
	orPointer(&c.LocalStorageCapacityIsolation, true)
	orDuration(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
	orPointer(&c.MergeDefaultEvictionSettings, false)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
}

func defaultNetwork(c *KubeletConfiguration) {
	orValue(&c.HairpinMode, kubeletconfig.PromiscuousBridge)
	orPointer(&c.ResolverConfig, "/etc/resolv.conf")
	orPointer(&c.MakeIPTablesUtilChains, true)
	orPointer(&c.IPTablesMasqueradeBit, 14)
	orPointer(&c.IPTablesDropBit, 15)
}

func defaultContainers(c *KubeletConfiguration, gates map[string]bool) {
	orValue(&c.ContainerRuntimeEndpoint, DefaultRuntimeEndpoint)
	orDuration(&c.RuntimeRequestTimeout, 2*time.Minute)
	orValue(&c.PodLogsDir, DefaultPodLogsDir)
	orValue(&c.ContainerLogMaxSize, "10Mi")
	orPointer(&c.ContainerLogMaxFiles, 5)
	orPointer(&c.ContainerLogMaxWorkers, 1)
	orPointer(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	orPointer(&c.SeccompDefault, false)
	orPointer(&c.EnableControllerAttachDetach, true)
	orValue(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	if gates["KubeletCrashLoopBackOffMax"] {
		orPointer(&c.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: crashBackOffMax})
	}
}

func defaultProcess(c *KubeletConfiguration) {
	orPointer(&c.OOMScoreAdj, -999)
	orValue(&c.MaxOpenFiles, 1_000_000)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
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

// commandLineBase is the configuration that flags are laid over when no --config file is given. The kubelet keeps the
// server of that case as open as it was before there were files, and documents it with --anonymous-auth,
// --authorization-mode, --authentication-token-webhook and --read-only-port.
func commandLineBase(gates map[string]bool) *KubeletConfiguration {
	c := &KubeletConfiguration{}
	setDefaults(c, gates)
	defaultEviction(c)
	anonymous, webhook := true, false
	c.Authentication.Anonymous.Enabled = &anonymous
	c.Authentication.Webhook.Enabled = &webhook
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	c.ReadOnlyPort = defaultReadOnlyPort
	return c
}
