package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/cpuset"
)

// refused lists values, as written in a file, with the path, the value and the reason in the error.
var refused = []struct{ content, want string }{
	{"port: -1", "port (--port): invalid value -1"},
	{"port: 65536", "port (--port): invalid value 65536: must be between 1 and 65535"},
	{"readOnlyPort: -1", "readOnlyPort (--read-only-port): invalid value -1"},
	{"healthzPort: 65536", "healthzPort (--healthz-port): invalid value 65536"},
	{"address: here", `address (--address): invalid value "here"`},
	{"healthzBindAddress: here", "healthzBindAddress"},
	{"authorization: {mode: Sometimes}", `authorization.mode (--authorization-mode): invalid value "Sometimes"`},
	{"enableSystemLogQuery: true\nenableSystemLogHandler: false",
		"enableSystemLogQuery: invalid value true: needs enableSystemLogHandler"},
	{"tlsCipherSuites: [TLS_AES_128_GCM_SHA256, ROT13]", `tlsCipherSuites[1] (--tls-cipher-suites): invalid value "ROT13"`},
	{"tlsMinVersion: '1.2'", "tlsMinVersion (--tls-min-version)"},
	{"tlsCurvePreferences: [1]", "tlsCurvePreferences[0]: invalid value 1"},
	{"serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}", "serverTLSBootstrap"},
	{"tracing: {samplingRatePerMillion: -1}", "tracing.samplingRatePerMillion: invalid value -1"},
	{"tracing: {endpoint: 'http://x'}", "tracing.endpoint"},

	{"eventRecordQPS: -1", "eventRecordQPS (--event-qps)"},
	{"eventBurst: -1", "eventBurst (--event-burst)"},
	{"kubeAPIQPS: -1", "kubeAPIQPS (--kube-api-qps)"},
	{"kubeAPIBurst: -1", "kubeAPIBurst (--kube-api-burst)"},
	{"nodeLeaseDurationSeconds: -1", "nodeLeaseDurationSeconds: invalid value -1"},
	{"nodeStatusMaxImages: -2", "nodeStatusMaxImages (--node-status-max-images)"},
	{"nodeStatusUpdateFrequency: -1s", "nodeStatusUpdateFrequency"},
	{"nodeStatusReportFrequency: -1s", "nodeStatusReportFrequency"},
	{"configMapAndSecretChangeDetectionStrategy: Guess", "configMapAndSecretChangeDetectionStrategy"},
	{"registerWithTaints: [{key: 'a b', effect: NoSchedule}]", "registerWithTaints[0] (--register-with-taints)"},
	{"registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: 2020-01-01T00:00:00Z}]", "registerWithTaints[0].timeAdded"},

	{"fileCheckFrequency: -1s", "fileCheckFrequency"},
	{"httpCheckFrequency: -1s", "httpCheckFrequency"},
	{"staticPodURL: /relative", "staticPodURL (--manifest-url)"},
	{"staticPodURLHeader: {'a b': [x]}", "staticPodURLHeader (--manifest-url-header)"},

	{"logging: {format: xml}", "logging.format (--logging-format)"},
	{"logging: {flushFrequency: -1s}", "logging.flushFrequency (--log-flush-frequency)"},
	{"logging: {verbosity: 4294967295}", "logging.verbosity (--v)"},
	{"logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule (--vmodule)"},
	{"logging: {vmodule: [{filePattern: 'a=b', verbosity: 1}]}", "logging.vmodule[0].filePattern"},

	{"registryPullQPS: -1", "registryPullQPS (--registry-qps)"},
	{"registryBurst: -1", "registryBurst (--registry-burst)"},
	{"imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent (--image-gc-high-threshold)"},
	{"imageGCLowThresholdPercent: -1", "imageGCLowThresholdPercent (--image-gc-low-threshold)"},
	{"imageGCLowThresholdPercent: 85", "must be less than imageGCHighThresholdPercent"},
	{"imageMinimumGCAge: -1s", "imageMinimumGCAge"},
	{"imageMaximumGCAge: -1s", "imageMaximumGCAge"},
	{"imageMaximumGCAge: 2m", "imageMaximumGCAge: invalid value \"2m0s\": must be more than imageMinimumGCAge"},
	{"maxParallelImagePulls: 0", "maxParallelImagePulls: invalid value 0"},
	{"maxParallelImagePulls: 2\nserializeImagePulls: true", "maxParallelImagePulls: invalid value 2"},
	{"imagePullCredentialsVerificationPolicy: Trust", "imagePullCredentialsVerificationPolicy"},
	{"preloadedImagesVerificationAllowlist: [a]", "preloadedImagesVerificationAllowlist"},
	{"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['a/*', 'b:tag']", "preloadedImagesVerificationAllowlist[1]"},
	{"imagePullCredentialsVerificationPolicy: AlwaysVerify\nfeatureGates: {KubeletEnsureSecretPulledImages: false}",
		"needs the feature gate KubeletEnsureSecretPulledImages"},

	{"containerRuntimeEndpoint: tcp://h:1", `containerRuntimeEndpoint (--container-runtime-endpoint): invalid value "tcp://h:1"`},
	{"imageServiceEndpoint: unix://relative", "imageServiceEndpoint (--image-service-endpoint)"},
	{"runtimeRequestTimeout: -1s", "runtimeRequestTimeout"},
	{"containerLogMaxSize: big", "containerLogMaxSize (--container-log-max-size)"},
	{"containerLogMaxFiles: 1", "containerLogMaxFiles (--container-log-max-files): invalid value 1: must be at least 2"},
	{"containerLogMaxWorkers: 0", "containerLogMaxWorkers"},
	{"containerLogMonitorInterval: 2s", "containerLogMonitorInterval"},
	{"podLogsDir: /var/../log", "podLogsDir"},
	{"podLogsDir: /var/lög", "must be ASCII"},
	{"clusterDNS: [192.0.2.1, dns]", `clusterDNS[1] (--cluster-dns): invalid value "dns"`},
	{"podCIDR: 10.0.0.0", "podCIDR (--pod-cidr)"},
	{"memoryManagerPolicy: static", "memoryManagerPolicy (--memory-manager-policy)"},
	{"topologyManagerPolicy: best", "topologyManagerPolicy (--topology-manager-policy)"},
	{"topologyManagerScope: node", "topologyManagerScope (--topology-manager-scope)"},
	{"reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", "only memory and hugepages-<size> can be reserved"},
	{"reservedMemory: [{numaNode: 0, limits: {memory: 0}}]", "must be more than 0"},
	{"reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 2}}]", "is a second reservation of NUMA node 0"},
	{"allowedUnsafeSysctls: [vm.swappiness]", "allowedUnsafeSysctls[0] (--allowed-unsafe-sysctls)"},
	{"allowedUnsafeSysctls: ['net.*.x']", "allowedUnsafeSysctls[0]"},
	{"crashLoopBackOff: {maxContainerRestartPeriod: 500ms}",
		"crashLoopBackOff.maxContainerRestartPeriod: invalid value \"500ms\""},
	{"crashLoopBackOff: {maxContainerRestartPeriod: 301s}", "must be between 1s and 5m0s"},
	{"crashLoopBackOff: {maxContainerRestartPeriod: 30s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}",
		"needs the feature gate KubeletCrashLoopBackOffMax"},

	{"maxPods: -1", "maxPods (--max-pods)"},
	{"podsPerCore: -1", "podsPerCore (--pods-per-core)"},
	{"oomScoreAdj: 1001", "oomScoreAdj (--oom-score-adj)"},
	{"cgroupDriver: hand", "cgroupDriver (--cgroup-driver)"},
	{"systemCgroups: /x", "systemCgroups (--system-cgroups): invalid value \"/x\": needs cgroupRoot"},
	{"cpuCFSQuotaPeriod: 2s", "cpuCFSQuotaPeriod (--cpu-cfs-quota-period)"},
	{"cpuCFSQuotaPeriod: 5ms\nfeatureGates: {CustomCPUCFSQuotaPeriod: false}", "needs the feature gate CustomCPUCFSQuotaPeriod"},
	{"memoryThrottlingFactor: 0", "memoryThrottlingFactor: invalid value 0"},
	{"memoryThrottlingFactor: 1.1", "memoryThrottlingFactor"},
	{"memoryReservationPolicy: All", "memoryReservationPolicy"},
	{"memoryReservationPolicy: TieredReservation", "needs the feature gate MemoryQoS"},
	{"memorySwap: {swapBehavior: UnlimitedSwap}", "memorySwap.swapBehavior"},
	{"systemReserved: {gpu: '1'}", "systemReserved[gpu] (--system-reserved)"},
	{"kubeReserved: {memory: lots}", "kubeReserved[memory] (--kube-reserved)"},
	{"kubeReserved: {memory: -1Gi}", "not negative"},
	{"maxOpenFiles: -1", "maxOpenFiles (--max-open-files): invalid value -1"},
	{"qosReserved: {cpu: 10%}", "qosReserved[cpu] (--qos-reserved)"},
	{"qosReserved: {memory: 101%}", "qosReserved[memory]"},
	{"cpuManagerPolicy: best", "cpuManagerPolicy (--cpu-manager-policy): invalid value \"best\""},
	{"cpuManagerReconcilePeriod: -1s", "cpuManagerReconcilePeriod (--cpu-manager-reconcile-period)"},
	{"reservedSystemCPUs: 0-", "reservedSystemCPUs (--reserved-cpus)"},
	{"reservedSystemCPUs: '0'\nkubeReservedCgroup: /k", "excludes systemReservedCgroup"},
	{"enforceNodeAllocatable: [everything]", "enforceNodeAllocatable (--enforce-node-allocatable): invalid value \"everything\""},
	{"enforceNodeAllocatable: [pods, pods]", "is named twice"},
	{"enforceNodeAllocatable: [none, pods]", "excludes everything else"},
	{"enforceNodeAllocatable: [none-compressible]", "none-compressible"},
	{"enforceNodeAllocatable: [system-reserved]", "needs systemReservedCgroup"},
	{"enforceNodeAllocatable: [kube-reserved-compressible]", "needs kubeReservedCgroup"},
	{"enforceNodeAllocatable: [kube-reserved]\nkubeReservedCgroup: /k", "needs kubeReservedCgroup and kubeReserved"},
	{"enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k",
		"in full and as compressible"},
	{"cgroupsPerQOS: false", "needs cgroupsPerQOS"},

	{"evictionPressureTransitionPeriod: -1s", "evictionPressureTransitionPeriod"},
	{"evictionHard: {disk: '1'}", "evictionHard[disk] (--eviction-hard)"},
	{"evictionHard: {memory.available: '0'}", "evictionHard[memory.available]"},
	{"evictionHard: {memory.available: 101%}", "between 0% and 100%"},
	{"evictionHard: {memory.available: NaN%}", "between 0% and 100%"},
	{"evictionSoft: {memory.available: 1Gi}",
		"evictionSoft[memory.available] (--eviction-soft): invalid value \"1Gi\": needs a period"},
	{"evictionSoftGracePeriod: {memory.available: soon}",
		"evictionSoftGracePeriod[memory.available] (--eviction-soft-grace-period)"},
	{"evictionMinimumReclaim: {memory.available: '-1'}", "evictionMinimumReclaim[memory.available] (--eviction-minimum-reclaim)"},
	{"shutdownGracePeriod: 500ms", "shutdownGracePeriod: invalid value \"500ms\""},
	{"shutdownGracePeriodCriticalPods: 2s", "must be at most shutdownGracePeriod"},
	{"shutdownGracePeriod: 2s\nfeatureGates: {GracefulNodeShutdown: false}", "needs the feature gate GracefulNodeShutdown"},
	{"shutdownGracePeriod: 2s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]",
		"shutdownGracePeriodByPodPriority"},
	{"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]",
		"shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds"},
}

func TestRefusedValues(t *testing.T) {
	for _, test := range refused {
		t.Run(test.content, func(t *testing.T) {
			_, _, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", header+test.content))
			oneLineWith(t, err, test.want)
			oneLineWith(t, err, "invalid value ")
		})
	}
}

// TestAcceptedValues holds the edge cases next to those of TestRefusedValues.
func TestAcceptedValues(t *testing.T) {
	for _, content := range []string{
		"port: 1\nreadOnlyPort: 65535\nhealthzPort: 0\naddress: '::'",
		"showHiddenMetricsForVersion: '1.35'\ntlsMinVersion: VersionTLS13\ntlsCurvePreferences: [29]",
		"eventRecordQPS: 0\nkubeAPIQPS: 0\nnodeStatusMaxImages: -1\nregistryPullQPS: 0",
		"imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 0\nimageMaximumGCAge: 121s",
		"maxParallelImagePulls: 1\nserializeImagePulls: true",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['reg.io/*', 'reg.io:5000/a/b', alpine, 'reg.io/a/*']",
		"containerLogMaxSize: '-1'\ncontainerLogMaxFiles: 2\ncontainerLogMonitorInterval: 3s\npodLogsDir: /var/log/pods/",
		"podCIDR: 10.0.0.0/24,2001:db8::/64\nclusterDNS: ['2001:db8::1']",
		"allowedUnsafeSysctls: ['net.*', 'kernel.msg*', 'kernel.shm_rmid_forced', 'net/ipv4/ip_forward', 'fs.mqueue.*']\ndefaultPodSysctls: {net.ipv4.ip_forward: '1', kernel.domainname: x}",
		"crashLoopBackOff: {maxContainerRestartPeriod: 1s}", "crashLoopBackOff: {maxContainerRestartPeriod: 300s}",
		"oomScoreAdj: -1000\npodPidsLimit: 0\ncpuCFSQuotaPeriod: 1ms", "cpuCFSQuotaPeriod: 1s",
		"memoryThrottlingFactor: 1\nmemoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: true}",
		"memorySwap: {swapBehavior: LimitedSwap}\nuserNamespaces: {idsPerPod: 131072}",
		"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}, {numaNode: 1, limits: {memory: 1Gi}}]",
		"systemReserved: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi, pid: '100'}\nqosReserved: {memory: 50%}\nreservedSystemCPUs: 0-1,3",
		"enforceNodeAllocatable: [none]\ncgroupsPerQOS: false", "enforceNodeAllocatable: []\ncgroupsPerQOS: false",
		"enforceNodeAllocatable: [pods, system-reserved, kube-reserved-compressible]\nsystemReservedCgroup: /s\nkubeReservedCgroup: /k\n" +
			"systemReserved: {memory: 1Gi}\nkubeReserved: {cpu: '1'}",
		"evictionHard: {memory.available: 0%, nodefs.available: 100%, pid.available: 10.5%}",
		"evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 0s}\nevictionMinimumReclaim: {memory.available: '0'}",
		"shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 30s",
		"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]",
		"logging: {options: {json: {splitStream: true}}}\nfeatureGates: {LoggingAlphaOptions: true}",
		"logging: {flushFrequency: 1000000}",
		"runOnce: true", "volumeStatsAggPeriod: -1s", "tracing: {endpoint: 'localhost:4317'}",
	} {
		t.Run(content, func(t *testing.T) {
			if _, _, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", header+content)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRefusedFlags(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{"--root-dir=", "--root-dir: invalid value"},
		{"--cert-dir=", "--cert-dir"},
		{"--admin-socket=", "--admin-socket"},
		{"--admin-socket=/" + strings.Repeat("x", 107), "107"},
		{"--exit-on-lock-contention", "--exit-on-lock-contention: invalid value true: needs --lock-file"},
		{"--housekeeping-interval=0", "--housekeeping-interval"},
		{"--cadvisor-port=70000", "--cadvisor-port"},
		{"--observatory-address=4195", `--observatory-address: invalid value "4195": write host:port`},
		{"--observatory-address=127.0.0.1:http", "--observatory-address"},
		{"--observatory-address=127.0.0.1:70000", "--observatory-address"},
		{"--node-labels=a/b/c=d", `--node-labels: invalid value "a/b/c=d": key`},
		{"--node-labels=a=b c", "value"},
		{"--node-labels=node-role.kubernetes.io/control-plane=", "node.kubernetes.io/instance-type"},
		{"--container-runtime-endpoint=", "containerRuntimeEndpoint (--container-runtime-endpoint)"},
		{"--hostname-override= ", "--hostname-override"},
	} {
		_, _, err := loadArgs(t, test.arg)
		oneLineWith(t, err, test.want)
	}
	const submission, anonymous, all = "--enable-manifest-submission", "--anonymous-auth", "--authorization-mode=AlwaysAllow"
	for _, args := range [][]string{{submission, anonymous}, {submission, all}, {anonymous, all}} {
		if _, _, err := loadArgs(t, args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	_, _, err := loadArgs(t, submission, anonymous, all)
	oneLineWith(t, err, "--enable-manifest-submission: invalid value true: everybody who connects")
	if _, _, err := loadArgs(t, "--node-labels=kubernetes.io/arch=x,node.kubernetes.io/own=y,example.com/z=,a=b",
		"--lock-file=/l", "--exit-on-lock-contention"); err != nil {
		t.Error(err)
	}
}

func TestAllProblemsAreSaidAtOnce(t *testing.T) {
	_, _, err := loadArgs(t, "--max-pods=-1", "--port=0", "--cgroup-driver=x")
	oneLineWith(t, err, "; ")
	for _, want := range []string{"maxPods", "port", "cgroupDriver"} {
		oneLineWith(t, err, want)
	}
}

func TestCheckCPUs(t *testing.T) {
	n := &Node{Kubelet: &KubeletConfiguration{}}
	for cpus, want := range map[string]string{
		"": "", "0": "", "0-1,4": "",
		"2":   "reservedSystemCPUs (--reserved-cpus): invalid value \"2\": this host has the CPUs 0-1,4 only",
		"0-4": "this host has the CPUs 0-1,4 only",
	} {
		n.Kubelet.ReservedSystemCPUs = cpus
		err := n.CheckCPUs(cpuset.New(0, 1, 4))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", cpus, err)
		}
	}
}

func TestCheckCgroups(t *testing.T) {
	for _, test := range []struct {
		content string
		v1, v2  bool // accepted
	}{
		{"", false, true},
		{"failCgroupV1: false", true, true},
		{"failCgroupV1: false\nsingleProcessOOMKill: false", false, true},
		{"failCgroupV1: false\nsingleProcessOOMKill: true", true, true},
	} {
		n, _, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", header+test.content))
		if err != nil {
			t.Fatal(err)
		}
		if v1, v2 := n.CheckCgroups(false), n.CheckCgroups(true); (v1 == nil) != test.v1 || (v2 == nil) != test.v2 {
			t.Errorf("%q: version 1: %v, version 2: %v", test.content, v1, v2)
		}
	}
}

// TestProblemsAreReadable looks at the shape of a message once, for people.
func TestProblemsAreReadable(t *testing.T) {
	got := fmt.Sprint(problem("maxPods", int32(-1), "must be at\nleast %d", 0))
	if want := "maxPods (--max-pods): invalid value -1: must be at least 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Thresholds of eviction and reservations can be set on the command line.
func TestEvictionOnTheCommandLine(t *testing.T) {
	node, _, err := loadArgs(t, "--eviction-hard=memory.available<500Mi,nodefs.available<1Gi,imagefs.available<100Gi",
		"--eviction-minimum-reclaim=memory.available=0Mi,nodefs.available=500Mi,imagefs.available=2Gi",
		"--eviction-soft=memory.available<1.5Gi,pid.available<10%", "--eviction-soft-grace-period=memory.available=1m30s,pid.available=0s",
		"--eviction-max-pod-grace-period=60", "--eviction-pressure-transition-period=30s", "--system-reserved=memory=1.5Gi",
		"--evict-static-pods")
	if err != nil {
		t.Fatal(err)
	}
	k := node.Kubelet
	for _, c := range []struct {
		got  map[string]string
		want string
	}{
		{k.EvictionHard, "map[imagefs.available:100Gi memory.available:500Mi nodefs.available:1Gi]"},
		{k.EvictionMinimumReclaim, "map[imagefs.available:2Gi memory.available:0Mi nodefs.available:500Mi]"},
		{k.EvictionSoft, "map[memory.available:1.5Gi pid.available:10%]"},
		{k.EvictionSoftGracePeriod, "map[memory.available:1m30s pid.available:0s]"},
		{k.SystemReserved, "map[memory:1.5Gi]"},
	} {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if k.EvictionMaxPodGracePeriod != 60 || !node.EvictStaticPods || k.EvictionPressureTransitionPeriod.Duration != 30*time.Second {
		t.Errorf("%+v", k)
	}
	for _, wrong := range []string{"--eviction-hard=memory.available", "--eviction-hard=memory.available>5Mi",
		"--eviction-hard=memory<5Mi", "--eviction-soft=memory.available<5Mi", "--eviction-hard=memory.available<101%"} {
		if _, _, err := parseAndLoad(t, wrong); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// parseAndLoad is loadArgs for a command line that may not even be read.
func parseAndLoad(t *testing.T, args ...string) (*Node, []Warning, error) {
	t.Helper()
	flags, fs, err := parse(args...)
	if err != nil {
		return nil, nil, err
	}
	return load(flags, fs, testHost)
}
