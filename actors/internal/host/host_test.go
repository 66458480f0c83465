package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Requests that the runtime would silently ignore are never sent.
func TestStrictGroupsTakeARuntimeThatCan(t *testing.T) {
	strict := v1.SupplementalGroupsPolicyStrict
	pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict}}}
	h := &Host{}
	if _, err := h.SandboxConfig(pod, 0, "", nil); err == nil || !strings.Contains(err.Error(), "supplementalGroupsPolicy is Strict") {
		t.Errorf("for a runtime that says nothing: %v", err)
	}
	h.Abilities = func() Abilities { return Abilities{SupplementalGroupsPolicy: true} }
	if _, err := h.SandboxConfig(pod, 0, "", nil); err != nil {
		t.Error(err)
	}
	merge := v1.SupplementalGroupsPolicyMerge
	pod.Spec.SecurityContext.SupplementalGroupsPolicy = &merge
	if _, err := (&Host{}).SandboxConfig(pod, 0, "", nil); err != nil {
		t.Error(err)
	}
}

// The node's resolver configuration comes and changes with the network: each sandbox gets it as it is then.
func TestResolverConfiguration_IsReadPerSandbox(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}}
	h := &Host{ResolvConf: file}
	servers := func() []string {
		t.Helper()
		config, err := h.SandboxConfig(pod, 0, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return config.DnsConfig.Servers
	}
	if got := servers(); len(got) != 0 {
		t.Errorf("before there is a file: %v", got)
	}
	for _, server := range []string{"192.0.2.1", "192.0.2.2"} {
		if err := os.WriteFile(file, []byte("nameserver "+server+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := servers(); !slices.Equal(got, []string{server}) {
			t.Errorf("got %v, want %s", got, server)
		}
	}
	h.DNS.NoHost, h.IPs = true, func() []string { return []string{"2001:db8::7"} }
	if got := servers(); !slices.Equal(got, []string{"::1"}) {
		t.Errorf("on a node with an address of IPv6 alone: %v", got)
	}
	h.ResolvConf = t.TempDir()
	if _, err := h.SandboxConfig(pod, 0, "", nil); err == nil || !strings.Contains(err.Error(), h.ResolvConf) {
		t.Errorf("of what is no file: %v", err)
	}
}

// Log collectors are seldom root: permissions removed by the umask are restored, and those removed by an administrator are
// not.
func TestTheFoldersOfLogsAreReadByAll(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "pod")
	for _, mode := range []os.FileMode{0o755, 0o700} {
		if err := MakeLogDir(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%v, %v, want %v", info.Mode(), err, mode)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsLeftOutOfDNS(t *testing.T) {
	h := &Host{DNS: translate.DNSFacts{ClusterDNS: []string{"10.0.0.1"}}}
	pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}}
	if got := h.DNSWarnings(pod); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	pod.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}}
	if got := h.DNSWarnings(pod); len(got) != 1 || got[0].Reason != "DNSConfigForming" {
		t.Errorf("%+v", got)
	}
}

// A node in no cluster has no clusterDNS: that is no fault of a pod.
func TestAStandaloneNodeWarnsOfNoClusterDNS(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}}
	for standalone, want := range map[bool]int{true: 0, false: 1} {
		h := &Host{Standalone: standalone}
		if got := h.DNSWarnings(pod); len(got) != want {
			t.Errorf("standalone %t: got %+v, want %d warnings", standalone, got, want)
		}
	}
}
