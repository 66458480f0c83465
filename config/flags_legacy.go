package config

import "strings"

const (
	cadvisorNow  = "ignored: it belonged to an embedded cAdvisor that Playlet does not have"
	logsToStderr = "ignored: the log goes to stderr, and the service manager keeps it"
	dockerGone   = "ignored: Docker Engine is spoken to through CRI only, at --container-runtime-endpoint"
	rktGone      = "ignored: rkt is no longer a runtime"
	cniInRuntime = "the container runtime calls CNI and decides which folders count; " +
		"playlet doctor looks into these, and so does the agent where the runtime names none"
	hostSources = "ignored: what a pod may use of the host is decided by admission (Pod Security Standards)"
)

// succeeded is a flag of old that has a successor, which is the field of the configuration that it sets.
func succeeded(name, field string) flagRow {
	return flagRow{name: name, at: fieldOf(field), legacy: true, field: field, usage: "replaced by " + field,
		successor: field + " in the --config file"}
}

// kept returns the row of a legacy flag whose value is stored for later use.
func kept(name string, at func(*Node) any, warning string) flagRow {
	return flagRow{name: name, at: func(t *target) any { return at(t.node) }, legacy: true, usage: "kept", warning: warning}
}

// goneRows are the rows of goneFlags.
func goneRows() []flagRow {
	var rows []flagRow
	for legacy, lists := range goneFlags {
		for _, list := range lists {
			for name := range strings.FieldsSeq(list[0]) {
				row := flagRow{at: nowhere, legacy: legacy, usage: NoEffect, warning: list[1]}
				var bare bool
				if row.name, bare = strings.CutSuffix(name, "?"); bare {
					row.at = nowhereBool
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// legacyRows are flags that kubelets from 1.2 on had and that the kubelet of 1.36 refuses.
var legacyRows = []flagRow{
	// With a successor.
	{name: "experimental-bootstrap-kubeconfig", at: func(t *target) any { return &t.node.BootstrapKubeconfigPath }, legacy: true,
		usage: "replaced by --bootstrap-kubeconfig", successor: "--bootstrap-kubeconfig"},
	succeeded("experimental-fail-swap-on", "failSwapOn"),
	succeeded("experimental-cgroups-per-qos", "cgroupsPerQOS"),
	succeeded("experimental-qos-reserved", "qosReserved"),
	succeeded("experimental-kernel-memcg-notification", "kernelMemcgNotification"),
	succeeded("experimental-allowed-unsafe-sysctls", "allowedUnsafeSysctls"),
	succeeded("system-container", "systemCgroups"),
	succeeded("resource-container", "kubeletCgroups"),
	succeeded("iptables-masquerade-bit", "iptablesMasqueradeBit"),
	succeeded("iptables-drop-bit", "iptablesDropBit"),
	succeeded("show-hidden-metrics-for-version", "showHiddenMetricsForVersion"),
	{name: "register-schedulable", at: func(t *target) any { return &t.node.schedulable }, legacy: true,
		field: "registerWithTaints",
		usage: "replaced by registerWithTaints", warning: "the flag adds to the file",
		successor: "registerWithTaints with " + unschedulableTaint + ":NoSchedule in the --config file"},

	// Kept.
	kept("cni-bin-dir", func(n *Node) any { return &n.CNIBinDirs }, cniInRuntime),
	kept("cni-conf-dir", func(n *Node) any { return &n.CNIConfDir }, cniInRuntime),
	kept("network-plugin-dir", func(n *Node) any { return &n.CNIConfDir }, cniInRuntime),
}

// goneFlags are flags without a setting, grouped by their warning. A flag with a question mark could appear without a value.
// The kubelet of 1.36 rejects those under true.
var goneFlags = map[bool][][2]string{
	true: {
		{"api-servers", "ignored: nothing is asked at these URLs; --kubeconfig replaces it"},
		{"cni-cache-dir", "ignored: the container runtime calls CNI and keeps its results where it likes"},
		{"pod-infra-container-image",
			"ignored: the container runtime's configuration names the sandbox image, and keeps it from being collected"},
		{"container-runtime", "ignored: every runtime is a CRI runtime; --container-runtime-endpoint says which"},
		{"containerized?", "ignored: run the agent on the host"},
		{`docker docker-endpoint docker-env-metadata-whitelist docker-exec-handler docker-only? docker-root
			docker-tls? docker-tls-ca docker-tls-cert docker-tls-key docker-disable-shared-pid?
			experimental-dockershim? experimental-dockershim-root-directory`, dockerGone},
		{"containerd-env-metadata-whitelist storage-driver", cadvisorNow},
		{"image-pull-progress-deadline", "ignored: the container runtime watches the progress of its pulls"},
		{"redirect-container-streaming?", "ignored: streams always pass through the agent"},
		{"rkt-path rkt-api-endpoint rkt-stage1-image", rktGone},
		{"experimental-runtime-integration-type", "ignored: CRI is the only integration"},
		{"seccomp-profile-root", "ignored: local profiles are looked for in seccomp below --root-dir"},
		{"network-plugin", "ignored: the container runtime calls CNI itself"},
		{"network-plugin-mtu", "ignored: the MTU belongs into the CNI configuration"},
		{"non-masquerade-cidr", "ignored: masquerading is the CNI plugin's or ip-masq-agent's affair"},
		{"configure-cbr0?", "ignored: bridges are the CNI plugin's affair"},
		{"reconcile-cidr?", "ignored: the node's CIDR is always followed"},
		{"experimental-flannel-overlay?", "ignored: overlays are the CNI plugin's affair"},
		{"auth-path", "ignored: --kubeconfig holds the credentials"},
		{"require-kubeconfig?", "ignored: with --kubeconfig the API server is used, without it the node stands alone"},
		{"cloud-config", "ignored: the cloud controller manager has the cloud's configuration"},
		{"azure-container-registry-config google-json-key", "ignored: --image-credential-provider-config replaces it"},
		{"master-service-namespace", "ignored: the API server's service is in namespace default"},
		{"dynamic-config-dir", "ignored: configuration over the API is gone; --config and --config-dir replace it"},
		{"bootstrap-checkpoint-path", "ignored: --pod-manifest-path takes the pods of a control plane that hosts itself"},
		{"chaos-chance", "ignored: faults are injected by Playlet's own chaos commands"},
		{"really-crash-for-testing?", "ignored: a panic restarts the actor it happened in"},
		{"allow-privileged?", "ignored: whether pods may be privileged is decided by admission (Pod Security Standards)"},
		{"host-ipc-sources host-network-sources host-pid-sources", hostSources},
		{"babysit-daemons?", "ignored: the service manager looks after daemons"},
		{"keep-terminated-pod-volumes?", "ignored: volumes of terminated pods are always unmounted"},
		{"experimental-check-node-capabilities-before-mount?", "ignored: a CSI driver checks for itself"},
		{"experimental-mounter-rootfs-path", "ignored: a CSI driver brings its own tools"},
		{"experimental-nvidia-gpus", "ignored: device plugins offer GPUs"},
		{"low-diskspace-threshold-mb", "ignored: nodefs.available in --eviction-hard replaces it"},
		{"outofdisk-transition-frequency", "ignored: --eviction-pressure-transition-period replaces it"},
		{"enable-custom-metrics?", "ignored: custom metrics come from a metrics adapter"},
		{"enable-cadvisor-json-endpoints? enable-cadvisor-json-apis?", "ignored: /stats/summary replaces these endpoints"},
		{`logtostderr? alsologtostderr? stderrthreshold log-dir log-file log-file-max-size one-output?
			skip-headers? skip-log-headers? add-dir-header?`, logsToStderr},
		{"log-backtrace-at", "ignored: a panic always logs its stack"},
		{"experimental-logging-sanitization? logging-sanitization?", "ignored: secrets are not logged"},
	},
	false: {
		{`application-metrics-count-limit boot-id-file container-hints containerd-namespace
			enable-load-reader? event-storage-age-limit event-storage-event-limit log-cadvisor-usage? machine-id-file
			storage-driver-buffer-duration storage-driver-db storage-driver-host storage-driver-password
			storage-driver-secure? storage-driver-table storage-driver-user`, cadvisorNow},
		{"containerd", cadvisorNow + "; the runtime is named by --container-runtime-endpoint"},
		{"global-housekeeping-interval", cadvisorNow + "; sampling follows --housekeeping-interval"},
	},
}
