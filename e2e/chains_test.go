//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// The chains of iptables for other programs on a node are the kubelet's (verified with PLAYLET_E2E_SUBJECT=kubelet), and none are
// created if that is disabled.
func TestChainsOfIPTables(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	want := map[string]string{
		"iptables mangle":  "-N KUBE-IPTABLES-HINT",
		"ip6tables mangle": "-N KUBE-IPTABLES-HINT",
		"iptables filter": `-A INPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A OUTPUT -j KUBE-FIREWALL
-N KUBE-FIREWALL`,
		"ip6tables filter": "",
	}
	chains := func() map[string]string {
		out := map[string]string{}
		for of := range want {
			program, table, _ := strings.Cut(of, " ")
			text, err := exec.CommandContext(t.Context(), program, "-w", "-t", table, "-S").Output()
			must(t, err)
			var lines []string
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); strings.Contains(line, "KUBE-") && !strings.Contains(line, "CANARY") {
					lines = append(lines, line)
				}
			}
			slices.Sort(lines)
			out[of] = strings.Join(lines, "\n")
		}
		return out
	}
	for _, earlier := range []string{ // created by agents of other tests
		"iptables -D INPUT -j KUBE-FIREWALL", "iptables -D OUTPUT -j KUBE-FIREWALL", "iptables -F KUBE-FIREWALL",
		"iptables -X KUBE-FIREWALL", "iptables -t mangle -X KUBE-IPTABLES-HINT", "ip6tables -t mangle -X KUBE-IPTABLES-HINT",
	} {
		_ = exec.CommandContext(t.Context(), "sh", "-c", earlier).Run()
	}
	_, a := inCluster(t, c, n, func(a *stack.Agent) { a.Config["makeIPTablesUtilChains"] = false })
	_, err := a.Term() // by then it has looked
	must(t, err)
	for of, got := range chains() {
		if got != "" {
			t.Errorf("without being wanted there are in %s:\n%s", of, got)
		}
	}
	delete(a.Config, "makeIPTablesUtilChains")
	must(t, a.Start())
	await(t, func() error {
		for of, got := range chains() {
			if got != want[of] {
				return fmt.Errorf("%s has\n%s\nnot\n%s", of, got, want[of])
			}
		}
		return nil
	})
}
