package network

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The real programs, in a network of the test's own.
func TestIPTablesIsAsItWas(t *testing.T) {
	path, err := exec.LookPath("iptables")
	if err != nil {
		t.Skip("not tried: no iptables (Debian: iptables)")
	}
	ownNetwork(t)
	families := bothFamilies(path)
	for _, theirs := range []bool{false, true} {
		changes := &Changes{Subnet: subnet, Bridge: "playlet0"}
		if theirs {
			for _, i := range families {
				must(t, i.restore(t.Context(), "*nat\n:THEIRS - [0:0]\n-A POSTROUTING -j THEIRS\nCOMMIT\n"))
				// FORWARD is not there: it is made with its first rule.
				must(t, i.restore(t.Context(), "*filter\n:THEIRS - [0:0]\n-A INPUT -j THEIRS\nCOMMIT\n"))
			}
		}
		var before []string
		for _, i := range families {
			var err error
			*i.before(changes), err = i.there(t.Context())
			must(t, err)
			before = append(before, everything(t, i))
		}
		must(t, families[0].admit(t.Context(), changes.Bridge, run))
		if now := everything(t, families[0]); strings.Count(now, "playlet-dev-o3bvy4") != 2 {
			t.Errorf("admitted:\n%s", now)
		}
		mapped := read(t, "testdata/mapped.rules")
		must(t, families[0].restore(t.Context(), mapped[strings.Index(mapped, "*nat"):]))
		must(t, families[0].restore(t.Context(), "*nat\n:CNI-aaaaaaaaaaaaaaaaaaaaaaaa - [0:0]\nCOMMIT\n"))
		for n, i := range families {
			if i.v6 { // a plugin that only looks makes the table
				must(t, i.restore(t.Context(), "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\nCOMMIT\n"))
			}
			must(t, i.clean(t.Context(), run, changes))
			must(t, i.clean(t.Context(), run, changes))
			again, err := i.there(t.Context())
			must(t, err)
			if now := everything(t, i); now != before[n] || !slices.Equal(again.Absent, i.before(changes).Absent) {
				t.Errorf("%s: there is\n%s\nand was\n%s\n%v", i.path, now, before[n], again)
			}
		}
	}
}

// everything returns the output of iptables-save without comments and counters.
func everything(t *testing.T, i iptables) string {
	t.Helper()
	text, err := i.run(t.Context(), i.path+"-save", "")
	must(t, err)
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			line, _, _ = strings.Cut(line, " [")
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}

// A table in which another has got a rule meanwhile stays, and that is no error.
func TestATableInUseStays(t *testing.T) {
	path, err := exec.LookPath("iptables")
	if err != nil {
		t.Skip("not tried: no iptables (Debian: iptables)")
	}
	ownNetwork(t)
	i := iptables{path: path}
	version, err := i.run(t.Context(), path, "", "--version")
	must(t, err)
	if !strings.Contains(version, "nf_tables") {
		t.Skipf("not tried: %s has no nftables behind it", strings.TrimSpace(version))
	}
	must(t, i.restore(t.Context(), "*nat\n-A POSTROUTING -j ACCEPT\nCOMMIT\n"))
	must(t, deleteTable(i.family(), "nat", []string{"PREROUTING", "POSTROUTING"}))
	if now := everything(t, i); !strings.Contains(now, "-A POSTROUTING -j ACCEPT") {
		t.Errorf("the rule is gone:\n%s", now)
	}
	must(t, i.restore(t.Context(), "*nat\n-D POSTROUTING -j ACCEPT\nCOMMIT\n"))
	must(t, deleteTable(i.family(), "nat", []string{"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}))
	if now := everything(t, i); now != "" {
		t.Errorf("there is\n%s", now)
	}
	must(t, deleteTable(i.family(), "nat", nil)) // that is not there any more
}
