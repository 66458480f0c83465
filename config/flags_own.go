package config

import (
	cliflag "k8s.io/component-base/cli/flag"
)

const askEviction = "kept; container garbage collection is better steered by --eviction-hard and --eviction-soft"

// own makes the row of a flag that sets a field of Node.
func own(name string, at func(*Node) any, usage string) flagRow {
	return flagRow{name: name, at: func(t *target) any { return at(t.node) }, usage: usage}
}

// advised adds what is said when the flag is used.
func (r flagRow) advised(warning string) flagRow {
	r.warning = warning
	return r
}

// ownRows are the flags that have no field in KubeletConfiguration: what differs from node to node, or says where the
// configuration is.
var ownRows = []flagRow{
	own("config", func(n *Node) any { return &n.ConfigFile },
		"KubeletConfiguration `file` (kubelet.config.k8s.io/v1beta1, YAML or JSON). "+
			"Flags given on the command line override it. "+
			"A folder here has its meaning of old, a manifest folder"),
	own("config-dir", func(n *Node) any { return &n.ConfigDir },
		"`folder` of drop-ins that override --config: files ending in .conf, applied in lexical order, sub-folders included"),
	own("kubeconfig", func(n *Node) any { return &n.KubeconfigPath },
		"`file` that says how to reach the API server. Without it the node stands alone"),
	own("bootstrap-kubeconfig", func(n *Node) any { return &n.BootstrapKubeconfigPath },
		"kubeconfig `file` used to request a client certificate while the file of --kubeconfig does not exist"),
	own("hostname-override", func(n *Node) any { return &n.hostname }, "`name` of this node in place of its host name"),
	own("node-ip", func(n *Node) any { return &n.nodeIP },
		"`address` of the node, or two of different families separated by a comma; "+
			":: or 0.0.0.0 asks for that family's default address"),
	own("node-labels", func(n *Node) any { return (*cliflag.ConfigurationMap)(&n.NodeLabels) },
		"`key=value` labels, comma-separated, put on the Node object at registration"),
	own("root-dir", func(n *Node) any { return &n.RootDir }, "`folder` for pods, volumes and plugins"),
	own("cert-dir", func(n *Node) any { return &n.CertDir },
		"`folder` for certificates, unless --tls-cert-file and --tls-private-key-file name them"),
	own("cloud-provider", func(n *Node) any { return &n.CloudProvider },
		"`kind` of cloud: external when a cloud controller initializes the node; empty when there is none"),
	own("runtime-cgroups", func(n *Node) any { return &n.RuntimeCgroups }, "absolute `cgroup` of the container runtime"),
	own("image-credential-provider-config", func(n *Node) any { return &n.ImageCredentialProviderConfig },
		"`path` of the configuration of credential provider plugins, a file or a folder of files"),
	own("image-credential-provider-bin-dir", func(n *Node) any { return &n.ImageCredentialProviderBinDir },
		"`folder` of the credential provider plugins"),
	own("lock-file", func(n *Node) any { return &n.LockFile }, "`file` to hold a lock on while running"),
	own("exit-on-lock-contention", func(n *Node) any { return &n.ExitOnLockContention },
		"exit when another process opens the lock file"),
	own("admin-socket", func(n *Node) any { return &n.AdminSocket },
		"unix `socket` on which playlet's sub-commands reach the agent"),
	own("enable-chaos", func(n *Node) any { return &n.EnableChaos },
		"let \"playlet chaos\" kill and pause actors of this agent and break their messages, for tests of failure"),
	own("enable-manifest-submission", func(n *Node) any { return &n.EnableManifestSubmission },
		"take manifests of pods at /manifests of --port, too, from clients that may create, update or delete nodes/manifests; "+
			"such a client is as good as root here"),
	own("observatory-address", func(n *Node) any { return &n.ObservatoryAddress },
		"serve a web page on what this agent does on this `host:port`, to who has the token (\"playlet observatory\" prints the "+
			"address with it). An empty host is the loopback; elsewhere the token and the page pass unencrypted. "+
			"Empty: on the admin socket alone"),
	own("admin-socket-group", func(n *Node) any { return &n.AdminSocketGroup },
		"`group` whose members may use the admin socket, beside root; it gives them all that root can do with pods"),
	own("object-dir", func(n *Node) any { return &n.ObjectDir },
		"`folder` of manifests of ConfigMaps, Secrets and RuntimeClasses for static pods; "+
			"without it, there are none. For root's eyes only (chmod 700)"),
	own("log-links-dir", func(n *Node) any { return &n.LogLinksDir },
		"`folder` with a link to the log of each container, named "+
			"<pod>_<namespace>_<container>-<id>.log, for log shippers; empty: none"),
	own("evict-static-pods", func(n *Node) any { return &n.EvictStaticPods },
		"evict static pods, too, unless their priority is critical; a kubelet never does, since nothing starts them elsewhere"),
	own("housekeeping-interval", func(n *Node) any { return &n.HousekeepingInterval },
		"how often container statistics are sampled"),

	own("minimum-container-ttl-duration", func(n *Node) any { return &n.MinimumContainerTTL },
		"least age of a dead container before it is collected").advised(askEviction),
	own("maximum-dead-containers-per-container", func(n *Node) any { return &n.MaxDeadContainersPerContainer },
		"dead instances to keep of each container").advised(askEviction),
	own("maximum-dead-containers", func(n *Node) any { return &n.MaxDeadContainers },
		"dead containers to keep on the node; negative for no limit").advised(askEviction),
	own("experimental-mounter-path", func(n *Node) any { return &n.MounterPath },
		"`program` that mounts in place of mount(8)").advised("a CSI driver is what replaces it"),
	own("experimental-allocatable-ignore-eviction", func(n *Node) any { return &n.AllocatableIgnoresEviction },
		"leave hard eviction thresholds out of node allocatable").advised("nothing replaces it, and Kubernetes means to " +
		"remove it"),
}
