package service

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/server/access"
	"github.com/playlet-dev/playlet/config"
)

// Section 4 of the CIS Kubernetes Benchmark (worker nodes, version 1.10), applied to the output of install: the files (4.1) and
// the agent's configuration from them (4.2), without a cluster and with the flags in /etc/default/playlet that join one. Out of
// scope are 4.1.3 and 4.1.4 (kube-proxy), and 4.1.7 and 4.1.8 (the client CA's file, which belongs to the administrator). The
// kubeconfig of 4.1.5 and 4.1.6 is written after the bootstrap (TestBootstrapFromNothing of actors/identity).
func TestSectionFourOfTheCISBenchmark(t *testing.T) {
	t.Run("standalone", func(t *testing.T) { sectionFour(t, false) })
	t.Run("cluster", func(t *testing.T) {
		sectionFour(t, true, "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
			"--client-ca-file=/etc/kubernetes/pki/ca.crt")
	})
}

func sectionFour(t *testing.T, open bool, args ...string) {
	m := newMachine(t)
	if err := m.install(t.Context()); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(m.root, "/etc/systemd/system/playlet.service")
	file := filepath.Join(m.root, m.config)
	for id, f := range map[string]struct {
		path string
		most os.FileMode
	}{"4.1.1, 4.1.2": {unit, 0o600}, "4.1.9, 4.1.10": {file, 0o600}} {
		info, err := os.Stat(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if extra := info.Mode().Perm() &^ f.most; extra != 0 {
			t.Errorf("%s: %s has mode %o", id, f.path, info.Mode().Perm())
		}
		// The installer is root, which this test need not be.
		if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid() {
			t.Errorf("%s: %s belongs to %d:%d", id, f.path, owner.Uid, owner.Gid)
		}
	}
	set := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	if err := set.Parse(append([]string{"--config=" + file}, args...)); err != nil {
		t.Fatal(err)
	}
	node, _, err := config.Load(flags, set)
	if err != nil {
		t.Fatal(err)
	}
	k := node.Kubelet
	version, err := cliflag.TLSVersion(k.TLSMinVersion)
	if err != nil {
		t.Fatal(err)
	}
	closed := access.Exposed(node).Closed != ""
	if closed == open {
		t.Errorf("port 10250: %+v", access.Exposed(node))
	}
	for id, ok := range map[string]bool{
		"4.2.1 anonymous is off":                      !ptr.Deref(k.Authentication.Anonymous.Enabled, true),
		"4.2.2 authorization is not AlwaysAllow":      k.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeWebhook,
		"4.2.3 a client CA, or the port is closed":    k.Authentication.X509.ClientCAFile != "" || closed,
		"4.2.4 the read-only port is off":             k.ReadOnlyPort == 0,
		"4.2.5 idle streams end":                      k.StreamingConnectionIdleTimeout.Duration > 0,
		"4.2.6 iptables chains are made":              ptr.Deref(k.MakeIPTablesUtilChains, false),
		"4.2.7 the name is not overridden":            !set.Changed("hostname-override"),
		"4.2.8 Events are recorded":                   ptr.Deref(k.EventRecordQPS, -1) >= 0,
		"4.2.9 the serving certificate is one's own":  k.ServerTLSBootstrap || k.TLSCertFile != "",
		"4.2.10 client certificates are rotated":      k.RotateCertificates,
		"4.2.11 serving certificates can be rotated":  node.FeatureEnabled("RotateKubeletServerCertificate"),
		"4.2.12 only strong cipher suites":            strong(k.TLSCipherSuites) || version >= tls.VersionTLS13,
		"4.2.13 pods cannot exhaust process IDs":      ptr.Deref(k.PodPidsLimit, -1) > 0,
		"4.2.14 seccomp's default filter is in force": ptr.Deref(k.SeccompDefault, false),
		"10248 is for the loopback":                   k.HealthzBindAddress == "127.0.0.1",
	} {
		if !ok {
			t.Errorf("not met: %s", id)
		}
	}
}

// strong reports whether there are cipher suites, and the benchmark names each of them.
func strong(suites []string) bool {
	named := map[string]bool{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": true, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": true,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": true, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": true,
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": true, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": true,
	}
	for _, s := range suites {
		if !named[s] {
			return false
		}
	}
	return len(suites) > 0
}
