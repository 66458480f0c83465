package config

import (
	"k8s.io/apimachinery/pkg/util/sets"
)

// pendingFields are the fields of KubeletConfiguration that are read but have no effect yet. They are not checked, and Load
// warns where one is set. A change that makes one take effect removes its name here. Of the others, some take effect in part:
//
//   - cgroupDriver: the runtime's own answer comes first.
//   - enableControllerAttachDetach: in the status of the Node only.
//   - featureGates: gate by gate, see effectiveGates.
//   - kernelMemcgNotification: the kernel's notifications are used wherever it has them.
//   - logging.flushFrequency: every line is written at once.
var pendingFields = sets.New(
	"syncFrequency", "hairpinMode",
	"iptablesMasqueradeBit", "iptablesDropBit", "showHiddenMetricsForVersion", "defaultPodSysctls",
	"volumePluginDir", "logging.options.json.infoBufferSize", "logging.options.json.splitStream",
	"logging.options.text.infoBufferSize", "logging.options.text.splitStream",
)

// pendingFlags are the same of the flags that set no field.
var pendingFlags = sets.New("housekeeping-interval", "experimental-mounter-path")

// effectiveGates are the feature gates that the program asks for, on or off; of these alone, AllAlpha and AllBeta mean anything.
var effectiveGates = map[string]bool{
	"ReduceDefaultCrashLoopBackOffDecay":      true,
	"KubeletCrashLoopBackOffMax":              true,
	"CustomCPUCFSQuotaPeriod":                 true, // for cpuCFSQuotaPeriod
	"GracefulNodeShutdown":                    true, // for shutdownGracePeriod
	"GracefulNodeShutdownBasedOnPodPriority":  true, // for shutdownGracePeriodByPodPriority
	"KubeletEnsureSecretPulledImages":         true, // for imagePullCredentialsVerificationPolicy
	"NodeSwap":                                true, // for memorySwap.swapBehavior
	"QOSReserved":                             true, // for qosReserved
	"RestartAllContainersOnContainerExits":    true,
	"DRAExtendedResource":                     true,
	"ResourceHealthStatus":                    true,
	"ResourceHealthStatusMessage":             true,
	"MemoryQoS":                               true, // for memoryThrottlingFactor and memoryReservationPolicy
	"InPlacePodLevelResourcesVerticalScaling": true,
	"ImageMaximumGCAge":                       true, // for imageMaximumGCAge
	"NodeLogQuery":                            true, // for enableSystemLogQuery
	"RotateKubeletServerCertificate":          true, // for serverTLSBootstrap
	"NodeDeclaredFeatures":                    true, // in the Node's declared features, as the next two
	"ExtendWebSocketsToKubelet":               true,
	"InPlacePodVerticalScalingInitContainers": true,
	"CPUManagerPolicyAlphaOptions":            true, // for cpuManagerPolicyOptions, as the next
	"CPUManagerPolicyBetaOptions":             true,
	"DisableCPUQuotaWithExclusiveCPUs":        true, // for cpuManagerPolicy, as the next
	"InPlacePodVerticalScalingExclusiveCPUs":  true,
	"KubeletPodResourcesListUseActivePods":    true,
	"PodsAPI":                                 true,
	"ClusterTrustBundle":                      true, // for the next
	"ClusterTrustBundleProjection":            true,
	"PodCertificateRequest":                   true,

	"InPlacePodVerticalScalingExclusiveMemory":         true, // for memoryManagerPolicy
	"KubeletServiceAccountTokenForCredentialProviders": true, // for tokenAttributes of credential providers
}
