package config

// effect is what a setting does in this version of Playlet.
type effect bool

const (
	inForce effect = true  // it does what it says
	pending effect = false // it is read and checked, and nothing looks at it yet; Load warns where it is set
)

// fieldEffects says of every field of KubeletConfiguration whether it takes effect. Who makes one take effect changes its
// row here; a field that a new version of the library brings has to be decided.
var fieldEffects = map[string]effect{
	"enableServer":                               pending,
	"staticPodPath":                              inForce,
	"podLogsDir":                                 inForce,
	"syncFrequency":                              pending,
	"fileCheckFrequency":                         inForce,
	"httpCheckFrequency":                         inForce,
	"staticPodURL":                               inForce,
	"staticPodURLHeader":                         inForce,
	"address":                                    pending,
	"port":                                       pending,
	"readOnlyPort":                               pending,
	"tlsCertFile":                                pending,
	"tlsPrivateKeyFile":                          pending,
	"tlsCipherSuites":                            pending,
	"tlsCurvePreferences":                        pending,
	"tlsMinVersion":                              pending,
	"rotateCertificates":                         pending,
	"serverTLSBootstrap":                         pending,
	"authentication.anonymous.enabled":           pending,
	"authentication.webhook.cacheTTL":            pending,
	"authentication.webhook.enabled":             pending,
	"authentication.x509.clientCAFile":           pending,
	"authorization.mode":                         pending,
	"authorization.webhook.cacheAuthorizedTTL":   pending,
	"authorization.webhook.cacheUnauthorizedTTL": pending,
	"registryPullQPS":                            inForce,
	"registryBurst":                              inForce,
	"imagePullCredentialsVerificationPolicy":     pending,
	"preloadedImagesVerificationAllowlist":       pending,
	"eventRecordQPS":                             inForce,
	"eventBurst":                                 inForce,
	"enableDebuggingHandlers":                    pending,
	"enableContentionProfiling":                  pending,
	"healthzPort":                                inForce,
	"healthzBindAddress":                         inForce,
	"oomScoreAdj":                                pending,
	"clusterDomain":                              inForce,
	"clusterDNS":                                 inForce,
	"streamingConnectionIdleTimeout":             pending,
	"nodeStatusUpdateFrequency":                  inForce,
	"nodeStatusReportFrequency":                  inForce,
	"nodeLeaseDurationSeconds":                   inForce,
	"imageMinimumGCAge":                          pending,
	"imageMaximumGCAge":                          pending,
	"imageGCHighThresholdPercent":                pending,
	"imageGCLowThresholdPercent":                 pending,
	"volumeStatsAggPeriod":                       pending,
	"kubeletCgroups":                             pending,
	"systemCgroups":                              pending,
	"cgroupRoot":                                 inForce,
	"cgroupsPerQOS":                              inForce,
	"cgroupDriver":                               inForce, // the runtime's own answer comes first
	"cpuManagerPolicy":                           pending,
	"singleProcessOOMKill":                       inForce,
	"cpuManagerPolicyOptions":                    pending,
	"cpuManagerReconcilePeriod":                  pending,
	"memoryManagerPolicy":                        pending,
	"topologyManagerPolicy":                      pending,
	"topologyManagerScope":                       pending,
	"topologyManagerPolicyOptions":               pending,
	"qosReserved":                                pending,
	"runtimeRequestTimeout":                      inForce,
	"hairpinMode":                                pending,
	"maxPods":                                    inForce,
	"podCIDR":                                    inForce,
	"podPidsLimit":                               inForce,
	"resolvConf":                                 inForce,
	"runOnce":                                    inForce,
	"cpuCFSQuota":                                inForce,
	"cpuCFSQuotaPeriod":                          inForce,
	"nodeStatusMaxImages":                        inForce,
	"maxOpenFiles":                               pending,
	"contentType":                                inForce,
	"kubeAPIQPS":                                 inForce,
	"kubeAPIBurst":                               inForce,
	"serializeImagePulls":                        inForce,
	"maxParallelImagePulls":                      inForce,
	"evictionHard":                               inForce, // kept from pods, and of the node's conditions; the agent says at its start that nothing is evicted
	"evictionSoft":                               inForce, // of the node's conditions
	"evictionSoftGracePeriod":                    pending,
	"evictionPressureTransitionPeriod":           inForce,
	"evictionMaxPodGracePeriod":                  pending,
	"evictionMinimumReclaim":                     inForce, // of the node's conditions
	"mergeDefaultEvictionSettings":               inForce, // of evictionHard
	"podsPerCore":                                inForce,
	"enableControllerAttachDetach":               inForce, // of what the Node says
	"protectKernelDefaults":                      pending,
	"makeIPTablesUtilChains":                     pending,
	"iptablesMasqueradeBit":                      pending,
	"iptablesDropBit":                            pending,
	"featureGates":                               inForce, // gate by gate, see effectiveGates
	"failSwapOn":                                 pending,
	"memorySwap.swapBehavior":                    inForce,
	"containerLogMaxSize":                        inForce,
	"containerLogMaxFiles":                       inForce,
	"containerLogMaxWorkers":                     inForce,
	"containerLogMonitorInterval":                inForce,
	"configMapAndSecretChangeDetectionStrategy":  inForce,
	"systemReserved":                             inForce,
	"kubeReserved":                               inForce,
	"reservedSystemCPUs":                         inForce, // as a number; the policies of the CPU manager are pending
	"showHiddenMetricsForVersion":                pending,
	"systemReservedCgroup":                       pending,
	"kubeReservedCgroup":                         pending,
	"enforceNodeAllocatable":                     inForce, // of pods; the agent says at its start that it does no more
	"allowedUnsafeSysctls":                       inForce,
	"defaultPodSysctls":                          pending,
	"volumePluginDir":                            pending,
	"providerID":                                 inForce,
	"kernelMemcgNotification":                    pending,
	"logging.flushFrequency":                     inForce, // every line is written at once
	"logging.format":                             inForce,
	"logging.options.json.infoBufferSize":        pending,
	"logging.options.json.splitStream":           pending,
	"logging.options.text.infoBufferSize":        pending,
	"logging.options.text.splitStream":           pending,
	"logging.verbosity":                          inForce,
	"logging.vmodule":                            inForce,
	"enableSystemLogHandler":                     pending,
	"enableSystemLogQuery":                       pending,
	"shutdownGracePeriod":                        pending,
	"shutdownGracePeriodCriticalPods":            pending,
	"shutdownGracePeriodByPodPriority":           pending,
	"crashLoopBackOff.maxContainerRestartPeriod": inForce,
	"reservedMemory":                             pending,
	"enableProfilingHandler":                     pending,
	"enableDebugFlagsHandler":                    pending,
	"seccompDefault":                             inForce,
	"memoryThrottlingFactor":                     pending,
	"memoryReservationPolicy":                    pending,
	"registerWithTaints":                         inForce,
	"registerNode":                               inForce,
	"tracing":                                    pending,
	"localStorageCapacityIsolation":              inForce, // of what the node has; nothing is evicted yet
	"containerRuntimeEndpoint":                   inForce,
	"imageServiceEndpoint":                       inForce,
	"failCgroupV1":                               inForce,
	"userNamespaces":                             pending,
}

// flagEffects says the same of every flag that sets no field and that is not there for old times' sake only.
var flagEffects = map[string]effect{
	"config":                                   inForce,
	"config-dir":                               inForce,
	"kubeconfig":                               inForce,
	"bootstrap-kubeconfig":                     inForce, // the agent says at its start that the API server's pods are not run by it alone
	"experimental-bootstrap-kubeconfig":        inForce,
	"hostname-override":                        inForce,
	"node-ip":                                  inForce,
	"node-labels":                              inForce,
	"root-dir":                                 inForce,
	"cert-dir":                                 pending,
	"cloud-provider":                           inForce,
	"runtime-cgroups":                          pending,
	"image-credential-provider-config":         pending,
	"image-credential-provider-bin-dir":        pending,
	"lock-file":                                inForce,
	"exit-on-lock-contention":                  inForce,
	"admin-socket":                             inForce,
	"object-dir":                               inForce,
	"log-links-dir":                            inForce,
	"housekeeping-interval":                    pending,
	"minimum-container-ttl-duration":           inForce,
	"maximum-dead-containers-per-container":    inForce,
	"maximum-dead-containers":                  inForce,
	"experimental-mounter-path":                pending,
	"experimental-allocatable-ignore-eviction": inForce,
	"api-servers":                              pending,
	"cadvisor-port":                            pending,
	"pod-infra-container-image":                pending,
	"cni-bin-dir":                              inForce, // of playlet doctor; the agent asks the runtime
	"cni-conf-dir":                             inForce, // the same
	"network-plugin-dir":                       inForce, // the same
	"cni-cache-dir":                            pending,
}

// effectiveGates are the feature gates that something asks for; of these alone, AllAlpha and AllBeta mean anything.
var effectiveGates = map[string]bool{
	"ReduceDefaultCrashLoopBackOffDecay": true,
	"KubeletCrashLoopBackOffMax":         true,
	"CustomCPUCFSQuotaPeriod":            true, // for cpuCFSQuotaPeriod
	"NodeSwap":                           true, // for memorySwap.swapBehavior
}
