//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// nodeIPv6 is a second address of the node, where bothFamilies was asked for.
const nodeIPv6 = "fd77::1"

// bothFamilies gives the node an IPv6 address, and pods of this stack one each.
func bothFamilies(t *testing.T, s *stack.Stack) {
	t.Helper()
	ip := func(do string) error {
		return exec.Command("ip", "addr", do, nodeIPv6+"/64", "dev", isolate.HostName, "nodad").Run()
	}
	must(t, ip("add"))
	t.Cleanup(func() { must(t, ip("del")) })
	path := filepath.Join(s.CNIConfDir(), "10-playlet.conflist")
	text, err := os.ReadFile(path)
	must(t, err)
	v4 := fmt.Sprintf("[{%q:%q}]", "subnet", s.Subnet())
	both := bytes.Replace(text, []byte(v4), []byte(v4+`,[{"subnet":"fd78::/64"}]`), 1)
	if bytes.Equal(both, text) {
		t.Fatalf("there is no %s in %s", v4, text)
	}
	must(t, os.WriteFile(path, both, 0o600))
}

// podsOfBothFamilies sees that pods have the node's addresses, in its order, and two of their own; on the host's network the
// node's.
func podsOfBothFamilies(t *testing.T, c *cluster.Cluster, s *stack.Stack, node, ns string) {
	t.Helper()
	create(t, c, ns, node, manifest(s, "own", oneSecond))
	create(t, c, ns, node, manifest(s, "host", "hostNetwork: true\n"+oneSecond))
	hosts := []corev1.HostIP{{IP: isolate.NodeIP}, {IP: nodeIPv6}}
	for _, name := range []string{"own", "host"} {
		st := awaitAPIPod(t, c, ns, name, ready).Status
		if st.HostIP != isolate.NodeIP || !slices.Equal(st.HostIPs, hosts) {
			t.Errorf("pod %s is on %s, %v, want %v", name, st.HostIP, st.HostIPs, hosts)
		}
		want := func(ip corev1.PodIP) bool { return strings.HasPrefix(ip.IP, "fd78::") }
		if name == "host" {
			want = func(ip corev1.PodIP) bool { return ip.IP == nodeIPv6 }
		}
		if len(st.PodIPs) != 2 || st.PodIP != st.PodIPs[0].IP || strings.Contains(st.PodIP, ":") || !want(st.PodIPs[1]) {
			t.Errorf("pod %s has %s, %v", name, st.PodIP, st.PodIPs)
		}
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
	}
}
