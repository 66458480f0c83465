package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func testHost() (string, error) { return "Test-Host\n", nil }

func mustLoad(t *testing.T, flags *Flags, fs *pflag.FlagSet) (*Node, []Warning) {
	t.Helper()
	node, warnings, err := load(flags, fs, testHost)
	if err != nil {
		t.Fatal(err)
	}
	return node, warnings
}

// loadArgs is parse and Load in one.
func loadArgs(t *testing.T, args ...string) (*Node, []Warning, error) {
	t.Helper()
	flags, fs, err := parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	return load(flags, fs, testHost)
}

// write puts content into a new file of the test's own folder.
func write(t *testing.T, folder, name, content string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	folder := t.TempDir()
	file := write(t, folder, "kubelet.yaml", header+`
maxPods: 1
podsPerCore: 1
registryBurst: 1
eventBurst: 1
evictionHard: {memory.available: 1Gi, nodefs.available: 2Gi}
clusterDNS: [192.0.2.1, 192.0.2.2]
featureGates: {NodeLogQuery: true, EventedPLEG: true, MemoryQoS: false}
`)
	write(t, folder, "d/10-first.conf",
		header+"podsPerCore: 2\nregistryBurst: 2\neventBurst: 2\nevictionHard: {memory.available: 3Gi}\n")
	write(t, folder, "d/sub/20.conf",
		header+"registryBurst: 3\neventBurst: 3\nclusterDNS: [192.0.2.3]\nfeatureGates: {EventedPLEG: false}\n")
	write(t, folder, "d/30.conf/ignored", "a folder's name does not count: [")
	write(t, folder, "d/30.conf.bak", "not read at all: [")
	write(t, folder, "d/20.yaml", "nor is this: [")
	node, _, err := loadArgs(t, "--config="+file, "--config-dir="+filepath.Join(folder, "d"),
		"--event-burst=4", "--feature-gates=MemoryQoS=true")
	if err != nil {
		t.Fatal(err)
	}
	c := node.Kubelet
	for name, pair := range map[string][2]int32{
		"default": {c.KubeAPIBurst, 100}, "file": {c.MaxPods, 1}, "first drop-in": {c.PodsPerCore, 2},
		"last drop-in": {c.RegistryBurst, 3}, "flag": {c.EventBurst, 4},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %d, want %d", name, pair[0], pair[1])
		}
	}
	if c.EvictionHard["memory.available"] != "3Gi" || c.EvictionHard["nodefs.available"] != "2Gi" || len(c.EvictionHard) != 2 {
		t.Errorf("maps do not merge: %v", c.EvictionHard)
	}
	if !slices.Equal(c.ClusterDNS, []string{"192.0.2.3"}) {
		t.Errorf("lists are not replaced: %v", c.ClusterDNS)
	}
	if !node.FeatureEnabled("NodeLogQuery") || node.FeatureEnabled("EventedPLEG") || !node.FeatureEnabled("MemoryQoS") {
		t.Errorf("gates do not merge: %v", c.FeatureGates)
	}
	if c.Kind != "KubeletConfiguration" || node.ConfigFile != file {
		t.Errorf("kind %q, file %q", c.Kind, node.ConfigFile)
	}
}

// A named pipe among the drop-ins is an error, and does not block the start.
func TestDropins_NamedPipe(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(folder, "1.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadArgs(t, "--config-dir="+folder); err == nil || !strings.Contains(err.Error(), "1.conf is not a regular file") {
		t.Errorf("%v", err)
	}
}

func TestDropins(t *testing.T) {
	for name, test := range map[string]struct {
		base, dropin string
		holds        func(*Node) bool
	}{
		"a threshold changes one default": {"", "evictionHard: {memory.available: 1Gi}",
			func(n *Node) bool {
				return n.Kubelet.EvictionHard["memory.available"] == "1Gi" && len(n.Kubelet.EvictionHard) == 5
			}},
		"null is the default again": {"maxPods: 5", "maxPods: null", func(n *Node) bool { return n.Kubelet.MaxPods == 110 }},
		"null takes a key out of a map": {"", "evictionHard: {imagefs.available: null}",
			func(n *Node) bool {
				_, there := n.Kubelet.EvictionHard["imagefs.available"]
				return !there && len(n.Kubelet.EvictionHard) == 4
			}},
		"false counts": {"enableServer: true", "enableServer: false", func(n *Node) bool { return !*n.Kubelet.EnableServer }},
		"zero counts":  {"healthzPort: 1", "healthzPort: 0", func(n *Node) bool { return *n.Kubelet.HealthzPort == 0 }},
		"objects merge": {"authentication: {x509: {clientCAFile: /ca}}", "authentication: {anonymous: {enabled: true}}",
			func(n *Node) bool {
				a := n.Kubelet.Authentication
				return a.X509.ClientCAFile == "/ca" && *a.Anonymous.Enabled
			}},
		"large numbers survive": {"maxOpenFiles: 9007199254740993", "maxPods: 3",
			func(n *Node) bool { return n.Kubelet.MaxOpenFiles == 9007199254740993 }},
		"a gate that is turned off takes its default along": {"", "featureGates: {KubeletCrashLoopBackOffMax: false}",
			func(n *Node) bool { return n.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			file := write(t, folder, "base.yaml", header+test.base)
			write(t, folder, "d/1.conf", header+test.dropin)
			node, _, err := loadArgs(t, "--config="+file, "--config-dir="+filepath.Join(folder, "d"))
			if err != nil {
				t.Fatal(err)
			}
			if !test.holds(node) {
				t.Errorf("does not hold: %+v", node.Kubelet)
			}
		})
	}
}

func TestRelativePaths(t *testing.T) {
	folder := t.TempDir()
	file := write(t, folder, "etc/kubelet.yaml", header+"staticPodPath: manifests\nresolvConf: \"\"\ntlsCertFile: /abs\n")
	write(t, folder, "drop/1.conf", header+"authentication: {x509: {clientCAFile: ca.pem}}\n")
	node, _, err := loadArgs(t, "--config="+file, "--config-dir="+filepath.Join(folder, "drop"), "--tls-private-key-file=key",
		"--root-dir=here")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		node.Kubelet.StaticPodPath:                         filepath.Join(folder, "etc/manifests"),
		node.Kubelet.Authentication.X509.ClientCAFile:      filepath.Join(folder, "drop/ca.pem"),
		node.Kubelet.TLSCertFile:                           "/abs",
		node.Kubelet.TLSPrivateKeyFile:                     filepath.Join(here, "key"),
		node.RootDir:                                       filepath.Join(here, "here"),
		"resolvConf stays " + *node.Kubelet.ResolverConfig: "resolvConf stays ",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestConfigFolderIsAManifestFolder(t *testing.T) {
	folder := t.TempDir()
	node, warnings, err := loadArgs(t, "--config="+folder)
	if err != nil {
		t.Fatal(err)
	}
	if node.Kubelet.StaticPodPath != folder {
		t.Errorf("manifest folder %q", node.Kubelet.StaticPodPath)
	}
	if !slices.ContainsFunc(warnings, func(w Warning) bool {
		return w.Flag == "--config" && strings.Contains(w.Message, "--pod-manifest-path")
	}) {
		t.Errorf("no warning: %v", warnings)
	}
	node, _, err = loadArgs(t, "--config="+folder, "--pod-manifest-path=/other")
	if err != nil || node.Kubelet.StaticPodPath != "/other" {
		t.Errorf("the flag's present name does not win: %v %v", node, err)
	}
}

func TestOldUnitsCommandLine(t *testing.T) {
	const line = `--allow-privileged=true --root-dir=/r --cert-dir=/c --authentication-token-webhook --read-only-port=0
		--anonymous-auth=false --client-ca-file=/ca --cluster-dns=10.0.0.10 --cluster-domain=cluster.local. --network-plugin=cni
		--cni-bin-dir=/bin1 --cni-conf-dir=/conf --kubeconfig=/kc --hostname-override=NAME --pod-manifest-path=/m --node-labels=a=b
		--hairpin-mode=hairpin-veth --fail-swap-on=false --system-reserved=memory=1.5Gi --v=1 --logtostderr=true
		--runtime-cgroups=/systemd/system.slice --kubelet-cgroups=/systemd/system.slice
		--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
		--manifest-url=http://h/p --file-check-frequency=5s --http_check_frequency=6s --register-node=false
		--node-status-update-frequency=7s --container-runtime=remote --runtime-request-timeout=15m --housekeeping-interval=8s
		--eviction-hard=memory.available<1Gi --eviction-soft=memory.available<2Gi --eviction-soft-grace-period=memory.available=1m
		--cadvisor-port=4194 --healthz-port=1 --healthz-bind-address=0.0.0.0 --api-servers=http://a,http://b`
	n, warnings, err := loadArgs(t, strings.Fields(line)...)
	if err != nil {
		t.Fatal(err)
	}
	c := n.Kubelet
	for name, holds := range map[string]bool{
		"folders": n.RootDir == "/r" && n.CertDir == "/c" && n.Kubelet.StaticPodPath == "/m" && n.KubeconfigPath == "/kc",
		"auth": *c.Authentication.Webhook.Enabled && !*c.Authentication.Anonymous.Enabled &&
			c.Authentication.X509.ClientCAFile == "/ca" && c.ReadOnlyPort == 0,
		"dns":      slices.Equal(c.ClusterDNS, []string{"10.0.0.10"}) && c.ClusterDomain == "cluster.local.",
		"cni":      slices.Equal(n.CNIBinDirs, []string{"/bin1"}) && n.CNIConfDir == "/conf",
		"identity": n.NodeName == "name" && n.NodeLabels["a"] == "b" && !n.RegisterNode() && !n.Standalone(),
		"node": c.HairpinMode == "hairpin-veth" && !*c.FailSwapOn && c.SystemReserved["memory"] == "1.5Gi" &&
			n.Verbosity() == 1,
		"cgroups": n.RuntimeCgroups == "/systemd/system.slice" && c.KubeletCgroups == "/systemd/system.slice",
		"tls":     len(c.TLSCipherSuites) == 2,
		"sources": c.StaticPodURL == "http://h/p" && n.Kubelet.FileCheckFrequency.Duration == 5*time.Second &&
			n.Kubelet.HTTPCheckFrequency.Duration == 6*time.Second,
		"runtime":  n.Kubelet.RuntimeRequestTimeout.Duration == 15*time.Minute && n.HousekeepingInterval == 8*time.Second,
		"eviction": len(c.EvictionHard) == 1 && c.EvictionSoft["memory.available"] == "2Gi",
		"ports":    n.CAdvisorPort == 4194 && *c.HealthzPort == 1 && c.HealthzBindAddress == "0.0.0.0",
		"status":   c.NodeStatusUpdateFrequency.Duration == 7*time.Second,
	} {
		if !holds {
			t.Errorf("%s: not in effect", name)
		}
	}
	for _, flag := range []string{"--allow-privileged", "--network-plugin", "--logtostderr", "--container-runtime",
		"--api-servers", "--cni-bin-dir"} {
		if !slices.ContainsFunc(warnings, func(w Warning) bool { return w.Flag == flag }) {
			t.Errorf("%s: no warning", flag)
		}
	}
}

func TestFlagsOfOldWithASuccessor(t *testing.T) {
	n, _, err := loadArgs(t, "--register-schedulable=false", "--system-container=/old", "--cgroup-root=/",
		"--experimental-fail-swap-on=false",
		"--experimental-bootstrap-kubeconfig=/b", "--iptables-drop-bit=3", "--resource-container=/old", "--kubelet-cgroups=/new",
		"--network-plugin-dir=/cni")
	if err != nil {
		t.Fatal(err)
	}
	c := n.Kubelet
	if len(c.RegisterWithTaints) != 1 || c.RegisterWithTaints[0].Key != corev1.TaintNodeUnschedulable {
		t.Errorf("taints %v", c.RegisterWithTaints)
	}
	if c.SystemCgroups != "/old" || *c.FailSwapOn || n.BootstrapKubeconfigPath != "/b" || *c.IPTablesDropBit != 3 ||
		n.CNIConfDir != "/cni" {
		t.Errorf("not in effect: %+v", n)
	}
	if c.KubeletCgroups != "/new" {
		t.Errorf("the name of old overrides the present one: %q", c.KubeletCgroups)
	}
}

func TestAnOpenServerIsWarnedAbout(t *testing.T) {
	const all, anonymous = "--authorization-mode=AlwaysAllow", "--anonymous-auth"
	for line, want := range map[string]string{
		"":                                 "",
		"--kubeconfig=/k":                  "",
		"--client-ca-file=/ca":             "",
		"--kubeconfig=/k " + anonymous:     "",
		"--kubeconfig=/k " + all:           "lets every holder of a token",
		"--bootstrap-kubeconfig=/b " + all: "lets every holder of a token",
		"--kubeconfig=/k --authentication-token-webhook=false " + all:     "",
		"--kubeconfig=/k " + anonymous + " " + all:                        "lets everyone",
		"--kubeconfig=/k --address=127.0.0.1 " + anonymous + " " + all:    "lets every user of this machine",
		"--kubeconfig=/k --address=127.0.0.1 " + all:                      "",
		"--kubeconfig=/k --enable-server=false " + anonymous + " " + all:  "",
		"--client-ca-file=/ca " + anonymous + " " + all:                   "lets every user of this machine",
		"--client-ca-file=/ca --address=0.0.0.0 " + anonymous + " " + all: "lets everyone",
		"--client-ca-file=/ca --address=0.0.0.0 " + all:                   "",
	} {
		_, warnings, err := loadArgs(t, strings.Fields(line)...)
		if err != nil {
			t.Fatal(err)
		}
		var said string
		for _, w := range warnings {
			if strings.Contains(w.Message, " lets ") {
				said = w.Message
			}
		}
		if !strings.Contains(said, want) || (said == "") != (want == "") {
			t.Errorf("%s: %q, want %q", line, said, want)
		}
	}
}

// An explicit server address counts, even if it equals the default of all addresses.
func TestTheAddressIsKnownToBeGiven(t *testing.T) {
	dir := t.TempDir()
	file := "--config=" + write(t, dir, "f", header+"address: 0.0.0.0")
	dropin := "--config-dir=" + filepath.Dir(write(t, t.TempDir(), "a.conf", header+"address: 0.0.0.0"))
	plain := "--config=" + write(t, dir, "g", header+"healthzPort: 1")
	for arg, want := range map[string]bool{
		"--address=0.0.0.0": true, "--address=": false, file: true, dropin: true, plain: false, "--kubeconfig=/k": false,
	} {
		if n, _, err := loadArgs(t, arg); err != nil || n.AddressGiven != want || n.Kubelet.Address != "0.0.0.0" {
			t.Errorf("%s: %v %v", arg, err, n)
		}
	}
}

func TestDocumentedExampleLoads(t *testing.T) {
	flags, fs, err := parse("--hostname-override=n")
	if err != nil {
		t.Fatal(err)
	}
	if node, _, err := Load(flags, fs); err != nil || node.NodeName != "n" || !node.Standalone() {
		t.Errorf("%+v, %v", node, err)
	}
}

// TestAnEmptyAddressIsTheDefault: a unit gives one where its variable is empty.
func TestAnEmptyAddressIsTheDefault(t *testing.T) {
	n, _, err := loadArgs(t, "--address=", "--healthz-bind-address=")
	if err != nil || n.Kubelet.Address != "0.0.0.0" || n.Kubelet.HealthzBindAddress != "127.0.0.1" {
		t.Errorf("%v, %v", n, err)
	}
}
