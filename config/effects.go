package config

import "strings"

// effect is what a setting does in this version of Playlet.
type effect bool

const (
	inForce effect = true  // it does what it says
	pending effect = false // it is read and checked, and nothing looks at it yet; Load warns where it is set
)

// effects makes a table of two lists.
func effects(done, open string) map[string]effect {
	table := map[string]effect{}
	for name := range strings.FieldsSeq(done) {
		table[name] = inForce
	}
	for name := range strings.FieldsSeq(open) {
		table[name] = pending
	}
	return table
}

// fieldEffects says of every field of KubeletConfiguration whether it takes effect: first those that do. Who makes one take
// effect moves its name; a field that a new version of the library brings has to be decided. Some take effect in part:
//
//   - cgroupDriver: the runtime's own answer comes first.
//   - enableControllerAttachDetach: in what the Node reports.
//   - featureGates: gate by gate, see effectiveGates.
//   - reservedSystemCPUs: as a number; the policies of the CPU manager are pending.
//   - kernelMemcgNotification: the kernel is asked in any case, where it tells.
//   - logging.flushFrequency: every line is written at once.
var fieldEffects = effects(`
	staticPodPath podLogsDir fileCheckFrequency httpCheckFrequency staticPodURL staticPodURLHeader registryPullQPS
	registryBurst eventRecordQPS eventBurst healthzPort healthzBindAddress clusterDomain clusterDNS nodeStatusUpdateFrequency
	nodeStatusReportFrequency nodeLeaseDurationSeconds cgroupRoot cgroupsPerQOS cgroupDriver singleProcessOOMKill
	runtimeRequestTimeout maxPods podCIDR podPidsLimit resolvConf runOnce cpuCFSQuota cpuCFSQuotaPeriod nodeStatusMaxImages
	contentType kubeAPIQPS kubeAPIBurst serializeImagePulls maxParallelImagePulls evictionHard evictionSoft
	evictionPressureTransitionPeriod evictionMinimumReclaim mergeDefaultEvictionSettings podsPerCore
	enableControllerAttachDetach featureGates memorySwap.swapBehavior containerLogMaxSize containerLogMaxFiles
	containerLogMaxWorkers containerLogMonitorInterval configMapAndSecretChangeDetectionStrategy systemReserved kubeReserved
	reservedSystemCPUs enforceNodeAllocatable allowedUnsafeSysctls providerID logging.flushFrequency logging.format
	logging.verbosity logging.vmodule crashLoopBackOff.maxContainerRestartPeriod seccompDefault registerWithTaints
	registerNode localStorageCapacityIsolation containerRuntimeEndpoint imageServiceEndpoint failCgroupV1 rotateCertificates
	enableServer address port readOnlyPort tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences
	tlsMinVersion serverTLSBootstrap authentication.anonymous.enabled authentication.webhook.cacheTTL
	authentication.webhook.enabled authentication.x509.clientCAFile authorization.mode
	authorization.webhook.cacheAuthorizedTTL authorization.webhook.cacheUnauthorizedTTL enableDebuggingHandlers
	enableContentionProfiling streamingConnectionIdleTimeout enableSystemLogHandler enableProfilingHandler enableDebugFlagsHandler
	volumeStatsAggPeriod kubeletCgroups systemCgroups imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent
	imageGCLowThresholdPercent evictionSoftGracePeriod evictionMaxPodGracePeriod kernelMemcgNotification enableSystemLogQuery
	shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority
	tracing imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist
	qosReserved protectKernelDefaults failSwapOn systemReservedCgroup kubeReservedCgroup oomScoreAdj
	memoryThrottlingFactor memoryReservationPolicy makeIPTablesUtilChains
`, `
	syncFrequency
	cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy topologyManagerPolicy
	topologyManagerScope topologyManagerPolicyOptions hairpinMode maxOpenFiles
	iptablesMasqueradeBit iptablesDropBit
	showHiddenMetricsForVersion defaultPodSysctls volumePluginDir
	logging.options.json.infoBufferSize logging.options.json.splitStream
	logging.options.text.infoBufferSize logging.options.text.splitStream reservedMemory userNamespaces
`)

// flagEffects says the same of every flag that sets no field and has some use. bootstrap-kubeconfig alone, without kubeconfig,
// makes no node of a cluster; the agent says so at its start. The folders of CNI are the doctor's, as the agent asks the runtime
// first.
var flagEffects = effects(`
	config config-dir kubeconfig bootstrap-kubeconfig experimental-bootstrap-kubeconfig hostname-override node-ip node-labels
	root-dir cloud-provider lock-file exit-on-lock-contention admin-socket admin-socket-group enable-chaos object-dir
	log-links-dir observatory-address
	minimum-container-ttl-duration maximum-dead-containers-per-container maximum-dead-containers
	experimental-allocatable-ignore-eviction cert-dir cni-bin-dir cni-conf-dir network-plugin-dir runtime-cgroups
	cadvisor-port evict-static-pods enable-manifest-submission image-credential-provider-config
	image-credential-provider-bin-dir
`, `
	housekeeping-interval
	experimental-mounter-path api-servers pod-infra-container-image cni-cache-dir
`)

// effectiveGates are the feature gates that something asks for; of these alone, AllAlpha and AllBeta mean anything.
var effectiveGates = map[string]bool{
	"ReduceDefaultCrashLoopBackOffDecay":     true,
	"KubeletCrashLoopBackOffMax":             true,
	"CustomCPUCFSQuotaPeriod":                true, // for cpuCFSQuotaPeriod
	"GracefulNodeShutdown":                   true, // for shutdownGracePeriod
	"GracefulNodeShutdownBasedOnPodPriority": true, // for shutdownGracePeriodByPodPriority
	"KubeletEnsureSecretPulledImages":        true, // for imagePullCredentialsVerificationPolicy
	"NodeSwap":                               true, // for memorySwap.swapBehavior
	"QOSReserved":                            true, // for qosReserved
	"RestartAllContainersOnContainerExits":   true,
	"MemoryQoS":                              true, // for memoryThrottlingFactor and memoryReservationPolicy

	"KubeletServiceAccountTokenForCredentialProviders": true, // for tokenAttributes of credential providers
}
