package config

const (
	logsToStderr = "ignored: the log goes to stderr, and the service manager keeps it"
	dockerGone   = "ignored: Docker Engine is spoken to through CRI only, at --container-runtime-endpoint"
	rktGone      = "ignored: rkt is no longer a runtime"
	cniInRuntime = "the container runtime calls CNI and decides which folders count; playlet doctor looks into these, and so does the agent where the runtime names none"
	hostSources  = "ignored: what a pod may use of the host is decided by admission (Pod Security Standards)"
)

// succeeded is a flag of old that has a successor, which is the field of the configuration that it sets.
func succeeded(name string, bind binder, field string) flagRow {
	return flagRow{name: name, bind: bind, legacy: true, field: field, usage: "replaced by " + field, successor: field}
}

// kept is a flag of old whose value is kept for what will be of use to it.
func kept(name string, bind binder, warning string) flagRow {
	return flagRow{name: name, bind: bind, legacy: true, usage: "kept", warning: warning}
}

// gone is a flag of old that took a value and has nothing to set; goneBool could stand without a value.
func gone(name, warning string) flagRow {
	return flagRow{name: name, bind: nowhere, legacy: true, usage: "no effect", warning: warning}
}

func goneBool(name, warning string) flagRow {
	return flagRow{name: name, bind: nowhereBool, legacy: true, usage: "no effect", warning: warning}
}

// legacyRows are flags that kubelets from 1.2 on had and that the kubelet of 1.36 refuses.
var legacyRows = []flagRow{
	// With a successor.
	{name: "experimental-bootstrap-kubeconfig", bind: onNode(func(n *Node) *string { return &n.BootstrapKubeconfigPath }), legacy: true,
		usage: "replaced by --bootstrap-kubeconfig", successor: "--bootstrap-kubeconfig"},
	succeeded("experimental-fail-swap-on", in(toBool, func(c *KubeletConfiguration) *bool { return c.FailSwapOn }), "failSwapOn"),
	succeeded("experimental-cgroups-per-qos", in(toBool, func(c *KubeletConfiguration) *bool { return c.CgroupsPerQOS }), "cgroupsPerQOS"),
	succeeded("experimental-qos-reserved", in(toMap, func(c *KubeletConfiguration) *map[string]string { return &c.QOSReserved }), "qosReserved"),
	succeeded("experimental-kernel-memcg-notification", in(toBool, func(c *KubeletConfiguration) *bool { return &c.KernelMemcgNotification }), "kernelMemcgNotification"),
	succeeded("experimental-allowed-unsafe-sysctls", in(toStrings, func(c *KubeletConfiguration) *[]string { return &c.AllowedUnsafeSysctls }), "allowedUnsafeSysctls"),
	succeeded("system-container", in(toString, func(c *KubeletConfiguration) *string { return &c.SystemCgroups }), "systemCgroups"),
	succeeded("resource-container", in(toString, func(c *KubeletConfiguration) *string { return &c.KubeletCgroups }), "kubeletCgroups"),
	succeeded("iptables-masquerade-bit", in(toInt32, func(c *KubeletConfiguration) *int32 { return c.IPTablesMasqueradeBit }), "iptablesMasqueradeBit"),
	succeeded("iptables-drop-bit", in(toInt32, func(c *KubeletConfiguration) *int32 { return c.IPTablesDropBit }), "iptablesDropBit"),
	succeeded("show-hidden-metrics-for-version", in(toString, func(c *KubeletConfiguration) *string { return &c.ShowHiddenMetricsForVersion }), "showHiddenMetricsForVersion"),
	{name: "register-schedulable", bind: toBool(func(t *target) *bool { return &t.node.schedulable }), legacy: true, field: "registerWithTaints",
		usage: "replaced by registerWithTaints", successor: "registerWithTaints with " + unschedulableTaint + ":NoSchedule"},

	// Kept.
	kept("api-servers", toStrings(func(t *target) *[]string { return &t.node.APIServers }), "nothing is asked at these URLs; --kubeconfig replaces it"),
	kept("cadvisor-port", toInt32(func(t *target) *int32 { return &t.node.CAdvisorPort }), "the metrics and stats of --port replace it"),
	kept("pod-infra-container-image", onNode(func(n *Node) *string { return &n.PodSandboxImage }), "the container runtime's configuration names the sandbox image, and keeps it from being collected"),
	kept("cni-bin-dir", toStrings(func(t *target) *[]string { return &t.node.CNIBinDirs }), cniInRuntime),
	kept("cni-conf-dir", onNode(func(n *Node) *string { return &n.CNIConfDir }), cniInRuntime),
	kept("network-plugin-dir", onNode(func(n *Node) *string { return &n.CNIConfDir }), cniInRuntime),
	kept("cni-cache-dir", onNode(func(n *Node) *string { return &n.CNICacheDir }), "the container runtime calls CNI and keeps its results where it likes"),

	// Runtimes.
	gone("container-runtime", "ignored: every runtime is a CRI runtime; --container-runtime-endpoint says which"),
	goneBool("containerized", "ignored: run the agent on the host"),
	gone("docker", dockerGone), gone("docker-endpoint", dockerGone), gone("docker-env-metadata-whitelist", dockerGone),
	gone("containerd-env-metadata-whitelist", cadvisorNow),
	gone("docker-exec-handler", dockerGone), goneBool("docker-only", dockerGone), gone("docker-root", dockerGone),
	goneBool("docker-tls", dockerGone), gone("docker-tls-ca", dockerGone), gone("docker-tls-cert", dockerGone),
	gone("docker-tls-key", dockerGone), goneBool("docker-disable-shared-pid", dockerGone),
	goneBool("experimental-dockershim", dockerGone), gone("experimental-dockershim-root-directory", dockerGone),
	gone("image-pull-progress-deadline", "ignored: the container runtime watches the progress of its pulls"),
	goneBool("redirect-container-streaming", "ignored: streams always pass through the agent"),
	gone("rkt-path", rktGone), gone("rkt-api-endpoint", rktGone), gone("rkt-stage1-image", rktGone),
	gone("experimental-runtime-integration-type", "ignored: CRI is the only integration"),
	gone("seccomp-profile-root", "ignored: local profiles are looked for in seccomp below --root-dir"),

	// Network.
	gone("network-plugin", "ignored: the container runtime calls CNI itself"),
	gone("network-plugin-mtu", "ignored: the MTU belongs into the CNI configuration"),
	gone("non-masquerade-cidr", "ignored: masquerading is the CNI plugin's or ip-masq-agent's affair"),
	goneBool("configure-cbr0", "ignored: bridges are the CNI plugin's affair"),
	goneBool("reconcile-cidr", "ignored: the node's CIDR is always followed"),
	goneBool("experimental-flannel-overlay", "ignored: overlays are the CNI plugin's affair"),

	// API server and credentials.
	gone("auth-path", "ignored: --kubeconfig holds the credentials"),
	goneBool("require-kubeconfig", "ignored: with --kubeconfig the API server is used, without it the node stands alone"),
	gone("cloud-config", "ignored: the cloud controller manager has the cloud's configuration"),
	gone("azure-container-registry-config", "ignored: --image-credential-provider-config replaces it"),
	gone("google-json-key", "ignored: --image-credential-provider-config replaces it"),
	gone("master-service-namespace", "ignored: the API server's service is in namespace default"),
	gone("dynamic-config-dir", "ignored: configuration over the API is gone; --config and --config-dir replace it"),
	gone("bootstrap-checkpoint-path", "ignored: --pod-manifest-path takes the pods of a control plane that hosts itself"),
	gone("chaos-chance", "ignored: faults are injected by Playlet's own chaos commands"),
	goneBool("really-crash-for-testing", "ignored: a panic restarts the actor it happened in"),

	// Pods and the host.
	goneBool("allow-privileged", "ignored: whether pods may be privileged is decided by admission (Pod Security Standards)"),
	gone("host-ipc-sources", hostSources), gone("host-network-sources", hostSources), gone("host-pid-sources", hostSources),
	goneBool("babysit-daemons", "ignored: the service manager looks after daemons"),
	goneBool("keep-terminated-pod-volumes", "ignored: volumes of terminated pods are always unmounted"),
	goneBool("experimental-check-node-capabilities-before-mount", "ignored: a CSI driver checks for itself"),
	gone("experimental-mounter-rootfs-path", "ignored: a CSI driver brings its own tools"),
	gone("experimental-nvidia-gpus", "ignored: device plugins offer GPUs"),
	gone("low-diskspace-threshold-mb", "ignored: nodefs.available in --eviction-hard replaces it"),
	gone("outofdisk-transition-frequency", "ignored: --eviction-pressure-transition-period replaces it"),
	goneBool("enable-custom-metrics", "ignored: custom metrics come from a metrics adapter"),
	goneBool("enable-cadvisor-json-endpoints", "ignored: /stats/summary replaces these endpoints"),
	goneBool("enable-cadvisor-json-apis", "ignored: /stats/summary replaces these endpoints"),
	gone("storage-driver", cadvisorNow),

	// The log of old.
	goneBool("logtostderr", logsToStderr), goneBool("alsologtostderr", logsToStderr), gone("stderrthreshold", logsToStderr),
	gone("log-dir", logsToStderr), gone("log-file", logsToStderr), gone("log-file-max-size", logsToStderr),
	goneBool("one-output", logsToStderr), goneBool("skip-headers", logsToStderr), goneBool("skip-log-headers", logsToStderr),
	goneBool("add-dir-header", logsToStderr), gone("log-backtrace-at", "ignored: a panic always logs its stack"),
	goneBool("experimental-logging-sanitization", "ignored: secrets are not logged"),
	goneBool("logging-sanitization", "ignored: secrets are not logged"),
}
