package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"

	featuregates "github.com/playlet-dev/playlet/config/gates"
)

// honoured are the fields that take effect, fully or in part. A change that makes one take effect moves its name here; a
// field of a newer library version fails the test until it is in one of the tables.
var honoured = sets.New(strings.Fields(`
	staticPodPath podLogsDir fileCheckFrequency httpCheckFrequency staticPodURL staticPodURLHeader registryPullQPS
	registryBurst eventRecordQPS eventBurst healthzPort healthzBindAddress clusterDomain clusterDNS nodeStatusUpdateFrequency
	nodeStatusReportFrequency nodeLeaseDurationSeconds cgroupRoot cgroupsPerQOS cgroupDriver singleProcessOOMKill
	runtimeRequestTimeout maxPods podCIDR podPidsLimit resolvConf runOnce cpuCFSQuota cpuCFSQuotaPeriod nodeStatusMaxImages
	contentType userNamespaces kubeAPIQPS kubeAPIBurst serializeImagePulls maxParallelImagePulls evictionHard evictionSoft
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
	qosReserved protectKernelDefaults failSwapOn systemReservedCgroup kubeReservedCgroup oomScoreAdj maxOpenFiles
	memoryThrottlingFactor memoryReservationPolicy makeIPTablesUtilChains
	cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy reservedMemory
	topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions
`)...)

// honouredFlags are the flags without a field that have an effect. bootstrap-kubeconfig without kubeconfig makes no node of a
// cluster; the agent reports that at its start. The CNI folders are for the doctor, as the agent asks the runtime first.
var honouredFlags = sets.New(strings.Fields(`
	config config-dir kubeconfig bootstrap-kubeconfig experimental-bootstrap-kubeconfig hostname-override node-ip node-labels
	root-dir cloud-provider lock-file exit-on-lock-contention admin-socket admin-socket-group enable-chaos object-dir
	log-links-dir observatory-address
	minimum-container-ttl-duration maximum-dead-containers-per-container maximum-dead-containers
	experimental-allocatable-ignore-eviction cert-dir cni-bin-dir cni-conf-dir network-plugin-dir runtime-cgroups
	cadvisor-port evict-static-pods enable-manifest-submission image-credential-provider-config
	image-credential-provider-bin-dir
`)...)

// TestEverySettingIsDecided: nothing that can be set is accepted without anybody knowing whether it does something.
func TestEverySettingIsDecided(t *testing.T) {
	known := map[string]string{}
	fieldsOf(t, reflect.ValueOf(KubeletConfiguration{}), "", known)
	fields := sets.KeySet(known)
	if decided := honoured.Union(pendingFields); !decided.Equal(fields) {
		t.Errorf("fields that are not decided: %v; that are none: %v", fields.Difference(decided), decided.Difference(fields))
	}
	if twice := honoured.Intersection(pendingFields); len(twice) > 0 {
		t.Errorf("fields that are decided twice: %v", twice)
	}
	flags := sets.New[string]()
	for _, row := range allRows() {
		if row.field == "" && !strings.HasPrefix(row.warning, "ignored: ") {
			flags.Insert(row.name)
		}
		if row.field != "" && known[row.field] == "" {
			t.Errorf("--%s sets %s, which is no field", row.name, row.field)
		}
	}
	if decided := honouredFlags.Union(pendingFlags); !decided.Equal(flags) {
		t.Errorf("flags that are not decided: %v; that are none: %v", flags.Difference(decided), decided.Difference(flags))
	}
	for name := range effectiveGates {
		if _, there := featuregates.Known()[name]; !there {
			t.Errorf("%s is no feature gate", name)
		}
	}
}

// TestEachFlagWithoutEffectSaysSo sets every flag alone: exactly the pending ones produce the warning, once.
func TestEachFlagWithoutEffectSaysSo(t *testing.T) {
	for _, row := range allRows() {
		_, fs, err := parse()
		if err != nil {
			t.Fatal(err)
		}
		flags, fs, err := parse("--" + row.name + "=" + sample(t, fs.Lookup(row.name)))
		if err != nil {
			t.Fatal(err)
		}
		got := pendingOf(t, flags, fs)
		want := []string{}
		if row.pending() {
			want = append(want, "--"+row.name)
		}
		if row.name == gatesRow.name {
			want = []string{"featureGates.AllAlpha"} // of the sample
		}
		if !slices.Equal(got, want) {
			t.Errorf("--%s: %v are said to have no effect", row.name, got)
		}
	}
}

// pendingOf returns the settings with a warning about no effect.
func pendingOf(t *testing.T, flags *Flags, fs *pflag.FlagSet) []string {
	t.Helper()
	to := newTarget(nil)
	sent, err := flags.replay(fs, to)
	if err != nil {
		t.Fatal(err)
	}
	to.kubelet.FeatureGates = featuregates.Merge(nil, to.gates)
	if !to.node.schedulable {
		to.node.Kubelet = to.kubelet
		if _, err := to.node.settle(testHost); err != nil {
			t.Fatal(err)
		}
	}
	return named(flags.pendingSettings(fs, to.kubelet, defaultConfiguration(nil), sent))
}

func named(warnings []Warning) []string {
	out := []string{}
	for _, w := range warnings {
		if strings.Contains(w.Message, noEffectYet) {
			out = append(out, w.Flag)
		}
	}
	return out
}

// TestWhatIsSetWithoutEffectIsNamedOnce, whether a file, a drop-in or a flag sets it, and only where it is not the default.
func TestWhatIsSetWithoutEffectIsNamedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"nothing":  {},
		"in force": {file: "staticPodPath: /m\nclusterDNS: [192.0.2.1]\nhealthzPort: 1\n", want: nil},
		"a file": {file: "syncFrequency: 5s\nmemorySwap: {}\nhairpinMode: none\n",
			want: []string{"hairpinMode", "syncFrequency"}},
		"what a kubelet would refuse": {file: "hairpinMode: both\n", args: []string{"--housekeeping-interval=1s"},
			want: []string{"--housekeeping-interval", "hairpinMode"}},
		"its defaults":     {file: "syncFrequency: 1m\nsystemReserved: {}\nreadOnlyPort: 0\nevictionPressureTransitionPeriod: 0s\npodPidsLimit: -1\n"},
		"a flag":           {args: []string{"--sync-frequency=5s"}, want: []string{"--sync-frequency"}},
		"a flag's default": {args: []string{"--sync-frequency=1m", "--node-labels="}},
		"a file and a flag": {file: "syncFrequency: 5s\n", args: []string{"--sync-frequency=6s"},
			want: []string{"--sync-frequency"}},
		"a flag takes back": {file: "syncFrequency: 5s\n", args: []string{"--sync-frequency=1m"}},
		"a flag of old": {args: []string{"--experimental-mounter-path=/m", "--network-plugin=cni", "--cadvisor-port=4194"},
			want: []string{"--experimental-mounter-path"}},
		"two flags of one": {args: []string{"--sync-frequency=5s", "--sync-frequency=6s"},
			want: []string{"--sync-frequency"}},
		"a node that is full": {args: []string{"--register-schedulable=false"}},
		"a threshold": {file: "evictionHard: {memory.available: 1Gi}\n",
			args: []string{"--experimental-allocatable-ignore-eviction"}},
		"a soft threshold": {file: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n"},
		"gates": {file: "featureGates: {ImageVolumeWithDigest: true, PodsAPI: true, MemoryQoS: true, ReduceDefaultCrashLoopBackOffDecay: true, NodeLogQuery: true}\n",
			want: []string{"featureGates.ImageVolumeWithDigest"}},
		"gates that are obeyed when off": {file: "featureGates: {NodeDeclaredFeatures: false, ExtendWebSocketsToKubelet: false, " +
			"InPlacePodLevelResourcesVerticalScaling: false, InPlacePodVerticalScalingInitContainers: false}\n"},
		"no cloud": {args: []string{"--cloud-provider=aws"}}, // ignored, with a warning of its own
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if test.file != "" {
				args = append(args, "--config="+write(t, t.TempDir(), "f", header+test.file))
			}
			_, warnings, err := loadArgs(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := named(warnings); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("got %v, want %v", got, test.want)
			}
			count := map[string]int{}
			for _, w := range warnings {
				count[w.Flag]++
			}
			for flag, n := range maps.All(count) {
				if n > 1 {
					t.Errorf("%s has %d lines", flag, n)
				}
			}
		})
	}
}

// TestAFlagWithoutEffectReadsSo looks at the line once, for people.
func TestAFlagWithoutEffectReadsSo(t *testing.T) {
	_, warnings, err := loadArgs(t, "--sync-frequency=5s")
	if err != nil || len(warnings) != 1 {
		t.Fatal(warnings, err)
	}
	if got, want := warnings[0].String(),
		"--sync-frequency: without effect in this version of Playlet; deprecated: set syncFrequency in the --config file"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// String is the warning on one line, for messages of tests.
func (w Warning) String() string { return w.Flag + ": " + w.Message }
