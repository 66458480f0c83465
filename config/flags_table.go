package config

import (
	cliflag "k8s.io/component-base/cli/flag"
)

// onlyFlags are the mirrored flags that Kubernetes does not mean to give up in favour of the file.
var onlyFlags = map[string]bool{
	"v": true, "vmodule": true, "log-flush-frequency": true, "provider-id": true, "fail-cgroupv1": true,
}

// mirror makes the row of a flag that sets a field of KubeletConfiguration. Like the kubelet, using one is answered with
// the advice to use the file.
func mirror(name, field, usage string) flagRow {
	row := flagRow{name: name, field: field, at: fieldOf(field), usage: usage}
	if name == "v" {
		row.shorthand = "v"
	}
	if !onlyFlags[name] {
		row.successor = field + " in the --config file"
	}
	return row
}

// gatesRow keeps the gates of the command line apart, because they are merged with the file's, gate by gate.
var gatesRow = flagRow{
	name: "feature-gates", field: "featureGates",
	at:        func(t *target) any { return cliflag.NewMapStringBool(&t.gates) },
	usage:     "`gate=bool` pairs, comma-separated, that turn features on and off; they are merged with those of the file",
	successor: "featureGates in the --config file", warning: "gate by gate, the flag wins over the file",
}

const askEviction = "kept; container garbage collection is better steered by --eviction-hard and --eviction-soft"

// own returns the row of a flag that sets a field of Node instead of KubeletConfiguration. Such flags differ between nodes,
// or locate the configuration.
func own(name string, at func(*Node) any, usage string) flagRow {
	return flagRow{name: name, at: func(t *target) any { return at(t.node) }, usage: usage}
}

// advised adds a warning for the use of the flag.
func (r flagRow) advised(warning string) flagRow {
	r.warning = warning
	return r
}

// flagGroup is one part of the help.
type flagGroup struct {
	title string
	rows  []flagRow
}

// flagGroups are the flags of today that do something, in the order of the help.
var flagGroups = []flagGroup{
	{"Configuration", []flagRow{
		own("config", func(n *Node) any { return &n.ConfigFile },
			"KubeletConfiguration `file` (kubelet.config.k8s.io/v1beta1, YAML or JSON). "+
				"Flags given on the command line override it. "+
				"If this is a folder, it is read as a manifest folder (legacy)"),
		own("config-dir", func(n *Node) any { return &n.ConfigDir },
			"`folder` of drop-ins that override --config: files ending in .conf, applied in lexical order, sub-folders included"),
		own("kubeconfig", func(n *Node) any { return &n.KubeconfigPath },
			"`file` with the address and credentials of the API server. Without it the node is standalone"),
		own("bootstrap-kubeconfig", func(n *Node) any { return &n.BootstrapKubeconfigPath },
			"kubeconfig `file` used to request a client certificate while the file of --kubeconfig does not exist"),
		gatesRow,
		own("root-dir", func(n *Node) any { return &n.RootDir }, "`folder` for pods, volumes and plugins"),
		own("cert-dir", func(n *Node) any { return &n.CertDir },
			"`folder` for certificates, unless --tls-cert-file and --tls-private-key-file name them"),
	}},
	{"Where pods come from", []flagRow{
		mirror("pod-manifest-path", "staticPodPath", "`path` of a folder of pod manifests, or of a single manifest"),
		mirror("manifest-url", "staticPodURL", "`URL` to fetch pod manifests from"),
		mirror("manifest-url-header", "staticPodURLHeader",
			"`name:value` headers, comma-separated and repeatable, sent to --manifest-url"),
		own("object-dir", func(n *Node) any { return &n.ObjectDir },
			"`folder` of manifests of ConfigMaps, Secrets and RuntimeClasses for static pods; "+
				"without it there are none. Only root should be able to read it (chmod 700)"),
		mirror("file-check-frequency", "fileCheckFrequency", "how often manifest files are read again"),
		mirror("http-check-frequency", "httpCheckFrequency", "how often --manifest-url is fetched"),
		mirror("sync-frequency", "syncFrequency", "longest time between two comparisons of running pods with desired ones"),
		mirror("runonce", "runOnce", "run the pods of files and URLs once and exit"),
	}},
	{"The container runtime and images", []flagRow{
		mirror("container-runtime-endpoint", "containerRuntimeEndpoint",
			"`address` of the container runtime, unix:///path/to.sock"),
		mirror("image-service-endpoint", "imageServiceEndpoint", "`address` of the image service, if it is not the runtime's"),
		mirror("runtime-request-timeout", "runtimeRequestTimeout",
			"time limit of runtime calls other than pull, logs, exec and attach"),
		own("runtime-cgroups", func(n *Node) any { return &n.RuntimeCgroups }, "absolute `cgroup` of the container runtime"),
		mirror("serialize-image-pulls", "serializeImagePulls", "pull one image at a time"),
		mirror("registry-qps", "registryPullQPS", "image pulls per second; 0 for no limit"),
		mirror("registry-burst", "registryBurst", "pulls that may start at once within --registry-qps"),
		mirror("minimum-image-ttl-duration", "imageMinimumGCAge", "minimum age of an unused image before it is collected"),
		mirror("image-gc-high-threshold", "imageGCHighThresholdPercent", "percentage of disk use at which images are collected"),
		mirror("image-gc-low-threshold", "imageGCLowThresholdPercent",
			"percentage of disk use down to which images are collected"),
		own("image-credential-provider-config", func(n *Node) any { return &n.ImageCredentialProviderConfig },
			"`path` of the configuration of credential provider plugins, a file or a folder of files"),
		own("image-credential-provider-bin-dir", func(n *Node) any { return &n.ImageCredentialProviderBinDir },
			"`folder` of the credential provider plugins"),
	}},
	{"The node", []flagRow{
		own("hostname-override", func(n *Node) any { return &n.hostname }, "`name` of this node instead of its host name"),
		own("node-ip", func(n *Node) any { return &n.nodeIP },
			"IP `address` of the node, or one of each family, comma-separated; "+
				":: or 0.0.0.0 asks for that family's default address"),
		own("node-labels", func(n *Node) any { return (*cliflag.ConfigurationMap)(&n.NodeLabels) },
			"`key=value` labels, comma-separated, put on the Node object at registration"),
		mirror("register-node", "registerNode", "create the Node object"),
		mirror("register-with-taints", "registerWithTaints",
			"taints of a newly registered node, key=value:effect, comma-separated"),
		mirror("provider-id", "providerID", "`ID` of this machine at its cloud provider"),
		own("cloud-provider", func(n *Node) any { return &n.CloudProvider },
			"`kind` of cloud: external if a cloud controller initializes the node; empty if there is none"),
		mirror("node-status-update-frequency", "nodeStatusUpdateFrequency", "how often the node's status is computed"),
		mirror("node-status-max-images", "nodeStatusMaxImages", "images listed in the node's status; -1 for all"),
		mirror("max-pods", "maxPods", "maximum number of pods on this node"),
		mirror("pods-per-core", "podsPerCore", "maximum number of pods per processor core, within --max-pods; 0 for no limit"),
		mirror("pod-max-pids", "podPidsLimit", "maximum number of processes per pod; -1 for the node's own limit"),
	}},
	{"Pods: their network, logs and security", []flagRow{
		mirror("cluster-dns", "clusterDNS", "IP addresses of the cluster's DNS servers, comma-separated"),
		mirror("cluster-domain", "clusterDomain", "DNS `domain` that containers search first"),
		mirror("resolv-conf", "resolvConf", "`file` that the DNS configuration of containers is derived from"),
		mirror("pod-cidr", "podCIDR", "`CIDR` of pod addresses on a standalone node"),
		mirror("hairpin-mode", "hairpinMode", "how a service reaches its own backend: promiscuous-bridge, hairpin-veth or none"),
		mirror("make-iptables-util-chains", "makeIPTablesUtilChains",
			"create the chains KUBE-IPTABLES-HINT and KUBE-FIREWALL, if iptables is installed"),
		mirror("container-log-max-size", "containerLogMaxSize", "`quantity` of bytes at which a container's log is rotated"),
		mirror("container-log-max-files", "containerLogMaxFiles", "log files kept of each container, at least 2"),
		own("log-links-dir", func(n *Node) any { return &n.LogLinksDir },
			"`folder` with a link to the log of each container, named "+
				"<pod>_<namespace>_<container>-<id>.log, for log shippers; if empty, no links"),
		mirror("seccomp-default", "seccompDefault", "give containers without a seccomp profile the runtime's default one"),
		mirror("allowed-unsafe-sysctls", "allowedUnsafeSysctls", "unsafe sysctls, or patterns ending in *, that pods may set"),
	}},
	{"Interfaces of the agent", []flagRow{
		own("admin-socket", func(n *Node) any { return &n.AdminSocket },
			"Unix `socket` on which playlet's sub-commands reach the agent"),
		own("admin-socket-group", func(n *Node) any { return &n.AdminSocketGroup },
			"`group` whose members may use the admin socket, besides root; they have root's power over pods"),
		own("observatory-address", func(n *Node) any { return &n.ObservatoryAddress },
			"serve a web page that shows this agent on this `host:port`, to anyone with the token (\"playlet observatory\" prints "+
				"the address with it). An empty host means the loopback; on other addresses the token and the page are "+
				"unencrypted. If the flag is empty, the page is only on the admin socket"),
		own("cadvisor-port", func(n *Node) any { return &n.CAdvisorPort },
			"`port` of cAdvisor's pages, metrics and API, on the loopback unless --address is given; 0 turns it off"),
		own("enable-chaos", func(n *Node) any { return &n.EnableChaos },
			"let \"playlet chaos\" kill and pause actors of this agent and lose, delay or duplicate their messages, "+
				"to test failures"),
		own("enable-manifest-submission", func(n *Node) any { return &n.EnableManifestSubmission },
			"accept manifests of pods at /manifests of --port from clients that may create, update or delete "+
				"nodes/manifests; such a client is equivalent to root on this node"),
		mirror("enable-server", "enableServer", "serve the kubelet's HTTPS API"),
		mirror("address", "address", "`IP` address that this API listens on; 0.0.0.0 or :: for all"),
		mirror("port", "port", "port of this API"),
		mirror("read-only-port", "readOnlyPort", "port of the read-only API, which needs no authentication; 0 turns it off"),
		mirror("healthz-port", "healthzPort", "port of /healthz; 0 turns it off"),
		mirror("healthz-bind-address", "healthzBindAddress", "`IP` address that /healthz listens on"),
		mirror("enable-debugging-handlers", "enableDebuggingHandlers", "serve logs, exec, attach and port-forward"),
		mirror("contention-profiling", "enableContentionProfiling", "record lock contention for profiles"),
		mirror("streaming-connection-idle-timeout", "streamingConnectionIdleTimeout",
			"how long a streaming connection may be idle"),
	}},
	{"Authentication and authorization", []flagRow{
		mirror("anonymous-auth", "authentication.anonymous.enabled", "accept requests without credentials, as system:anonymous"),
		mirror("authentication-token-webhook", "authentication.webhook.enabled",
			"let the API server's TokenReview check bearer tokens"),
		mirror("authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL",
			"how long the check of a token is cached"),
		mirror("client-ca-file", "authentication.x509.clientCAFile",
			"`file` with the certificate authorities of accepted client certificates"),
		mirror("authorization-mode", "authorization.mode", "AlwaysAllow, or Webhook to ask the API server's SubjectAccessReview"),
		mirror("authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL",
			"how long a positive answer of the authorizer is cached"),
		mirror("authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL",
			"how long a negative answer of the authorizer is cached"),
		mirror("tls-cert-file", "tlsCertFile",
			"`file` of the serving certificate, followed by intermediates; by default, a self-signed one in --cert-dir"),
		mirror("tls-private-key-file", "tlsPrivateKeyFile", "`file` of the private key of --tls-cert-file"),
		mirror("tls-cipher-suites", "tlsCipherSuites", "cipher suites to offer, comma-separated, by their Go names"),
		mirror("tls-min-version", "tlsMinVersion", "lowest TLS version: VersionTLS10 to VersionTLS13"),
		mirror("rotate-certificates", "rotateCertificates", "renew the client certificate from the API server before it expires"),
		mirror("rotate-server-certificates", "serverTLSBootstrap",
			"obtain and renew the serving certificate from the API server"),
	}},
	{"Requests to the API server", []flagRow{
		mirror("kube-api-content-type", "contentType", "media type of requests to the API server"),
		mirror("kube-api-qps", "kubeAPIQPS", "requests per second to the API server"),
		mirror("kube-api-burst", "kubeAPIBurst", "requests that may be sent at once within --kube-api-qps"),
		mirror("event-qps", "eventRecordQPS", "events sent per second; 0 for no limit"),
		mirror("event-burst", "eventBurst", "events that may be sent at once within --event-qps"),
	}},
	{"Cgroups, reservations and placement", []flagRow{
		mirror("cgroup-driver", "cgroupDriver",
			"cgroupfs or systemd, as the manager of cgroups; the driver that the runtime reports takes precedence"),
		mirror("cgroup-root", "cgroupRoot", "`cgroup` under which pods live"),
		mirror("cgroups-per-qos", "cgroupsPerQOS", "create cgroups for QoS classes and pods"),
		mirror("kubelet-cgroups", "kubeletCgroups", "absolute `cgroup` of the agent itself"),
		mirror("system-cgroups", "systemCgroups", "absolute `cgroup` for processes that are in no other"),
		mirror("cpu-cfs-quota", "cpuCFSQuota", "enforce CPU limits with CFS quotas"),
		mirror("cpu-cfs-quota-period", "cpuCFSQuotaPeriod", "period of the CFS quota"),
		mirror("system-reserved", "systemReserved",
			"`resource=quantity` withheld for the system: cpu, memory, ephemeral-storage, pid"),
		mirror("system-reserved-cgroup", "systemReservedCgroup", "absolute `cgroup` that --system-reserved is enforced on"),
		mirror("kube-reserved", "kubeReserved",
			"`resource=quantity` withheld for Kubernetes: cpu, memory, ephemeral-storage, pid"),
		mirror("kube-reserved-cgroup", "kubeReservedCgroup", "absolute `cgroup` that --kube-reserved is enforced on"),
		mirror("enforce-node-allocatable", "enforceNodeAllocatable",
			"where reservations are enforced: none, pods, system-reserved, kube-reserved; the latter two also with "+
				"-compressible"),
		mirror("reserved-cpus", "reservedSystemCPUs", "`list` of CPUs withheld for system and Kubernetes"),
		mirror("reserved-memory", "reservedMemory", "`node:type=quantity` memory withheld from a NUMA node, repeatable"),
		mirror("qos-reserved", "qosReserved",
			"`resource=percentage` of requests reserved for their QoS class (feature gate QOSReserved)"),
		mirror("cpu-manager-policy", "cpuManagerPolicy", "none or static"),
		mirror("cpu-manager-policy-options", "cpuManagerPolicyOptions",
			"`key=value` option of the CPU manager's policy, repeatable"),
		mirror("cpu-manager-reconcile-period", "cpuManagerReconcilePeriod", "how often CPU placement is checked"),
		mirror("memory-manager-policy", "memoryManagerPolicy", "None or Static"),
		mirror("topology-manager-policy", "topologyManagerPolicy", "none, best-effort, restricted or single-numa-node"),
		mirror("topology-manager-scope", "topologyManagerScope", "container or pod"),
		mirror("topology-manager-policy-options", "topologyManagerPolicyOptions",
			"`key=value` options of the topology manager's policy"),
	}},
	{"Eviction, dead containers and volumes", []flagRow{
		mirror("eviction-hard", "evictionHard", "`signal<quantity` thresholds at which pods are evicted at once"),
		mirror("eviction-soft", "evictionSoft",
			"`signal<quantity` thresholds at which pods are evicted after --eviction-soft-grace-period"),
		mirror("eviction-soft-grace-period", "evictionSoftGracePeriod",
			"`signal=duration` for which a soft threshold must be met"),
		mirror("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod",
			"maximum grace period in seconds of a pod evicted by a soft threshold; negative for the pod's own"),
		mirror("eviction-minimum-reclaim", "evictionMinimumReclaim", "`signal=quantity` that an eviction reclaims at least"),
		mirror("eviction-pressure-transition-period", "evictionPressureTransitionPeriod",
			"how long a pressure condition remains after its cause is gone"),
		mirror("kernel-memcg-notification", "kernelMemcgNotification", "let the kernel report memory thresholds"),
		own("evict-static-pods", func(n *Node) any { return &n.EvictStaticPods },
			"evict static pods too, unless their priority is critical; a kubelet never does, since nothing starts them "+
				"elsewhere"),
		own("experimental-allocatable-ignore-eviction", func(n *Node) any { return &n.AllocatableIgnoresEviction },
			"do not subtract hard eviction thresholds from node allocatable").advised("it has no replacement, and Kubernetes " +
			"plans to remove it"),
		mirror("local-storage-capacity-isolation", "localStorageCapacityIsolation", "account for local ephemeral storage"),
		own("minimum-container-ttl-duration", func(n *Node) any { return &n.MinimumContainerTTL },
			"minimum age of a dead container before it is collected").advised(askEviction),
		own("maximum-dead-containers", func(n *Node) any { return &n.MaxDeadContainers },
			"dead containers to keep on the node; negative for no limit").advised(askEviction),
		own("maximum-dead-containers-per-container", func(n *Node) any { return &n.MaxDeadContainersPerContainer },
			"dead instances to keep of each container").advised(askEviction),
		mirror("enable-controller-attach-detach", "enableControllerAttachDetach", "leave attaching volumes to the controller"),
		mirror("volume-plugin-dir", "volumePluginDir", "`folder` of third-party volume plugins"),
		mirror("volume-stats-agg-period", "volumeStatsAggPeriod",
			"how often the disk use of volumes is computed; negative for never"),
		own("experimental-mounter-path", func(*Node) any { return new(string) },
			"`program` that mounts instead of mount(8)").advised("use a CSI driver"),
	}},
	{"The machine", []flagRow{
		mirror("fail-swap-on", "failSwapOn", "refuse to start if swap is on"),
		mirror("fail-cgroupv1", "failCgroupV1", "refuse to start on a machine with cgroup v1"),
		mirror("protect-kernel-defaults", "protectKernelDefaults",
			"refuse to start if kernel settings differ from the expected ones, instead of changing them"),
		mirror("max-open-files", "maxOpenFiles", "maximum number of files that the agent may open"),
		mirror("oom-score-adj", "oomScoreAdj", "the agent's own oom_score_adj, -1000 to 1000"),
		own("lock-file", func(n *Node) any { return &n.LockFile }, "`file` that is locked while the agent runs"),
		own("exit-on-lock-contention", func(n *Node) any { return &n.ExitOnLockContention },
			"exit when another process opens the lock file"),
		own("housekeeping-interval", func(n *Node) any { return &n.HousekeepingInterval },
			"how often container statistics are sampled"),
	}},
	{"The agent's log", []flagRow{
		mirror("v", "logging.verbosity", "`level` of detail of the log, 0 for the least"),
		mirror("vmodule", "logging.vmodule",
			"`pattern=level` pairs, comma-separated: levels of single source files, text format only"),
		mirror("logging-format", "logging.format", "text or json"),
		mirror("log-flush-frequency", "logging.flushFrequency", "longest time between two flushes of the log"),
		mirror("log-text-split-stream", "logging.options.text.splitStream",
			"text: errors to stderr, the rest to stdout (feature gate LoggingAlphaOptions)"),
		mirror("log-text-info-buffer-size", "logging.options.text.infoBufferSize",
			"text: bytes of buffer of the stdout stream (feature gate LoggingAlphaOptions)"),
		mirror("log-json-split-stream", "logging.options.json.splitStream",
			"json: errors to stderr, the rest to stdout (feature gate LoggingAlphaOptions)"),
		mirror("log-json-info-buffer-size", "logging.options.json.infoBufferSize",
			"json: bytes of buffer of the stdout stream (feature gate LoggingAlphaOptions)"),
	}},
}
