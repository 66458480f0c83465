package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const run, subnet = "playlet-dev-o3bvy4", "10.199.0.0/24"

// after applies the input as iptables-restore --noflush would, and fails in the same cases.
func after(saved ruleset, orders string) (ruleset, error) {
	table := ""
	for line := range strings.Lines(orders) {
		line = strings.TrimSpace(line)
		order, rest, _ := strings.Cut(line, " ")
		var gone int
		switch {
		case line == "COMMIT":
			continue
		case line[0] == '*':
			table = line[1:]
			continue
		case order == "-D":
			if gone = slices.Index(saved.rules[table], "-A "+rest); gone < 0 {
				return saved, fmt.Errorf("no rule %q", rest)
			}
			saved.rules[table] = slices.Delete(saved.rules[table], gone, gone+1)
		case order == "-F":
			saved.rules[table] = slices.DeleteFunc(saved.rules[table], func(r string) bool { return chainOf(r) == rest })
		case order == "-X":
			for _, rule := range saved.rules[table] {
				if chainOf(rule) == rest || jump(rule) == rest {
					return saved, fmt.Errorf("%s is removed with rule %q there", rest, rule)
				}
			}
			if gone = slices.Index(saved.own[table], rest); gone < 0 {
				return saved, fmt.Errorf("no chain %q", rest)
			}
			saved.own[table] = slices.Delete(saved.own[table], gone, gone+1)
		default:
			return saved, fmt.Errorf("order %q", line)
		}
	}
	return saved, nil
}

func TestRunRules_UndoneAndNoOthers(t *testing.T) {
	saved := parseRuleset(read(t, "testdata/mapped.rules"))
	if got := fmt.Sprint(saved.tables, saved.builtin["nat"], saved.own["filter"], len(saved.rules["nat"])); got !=
		"[filter nat] [PREROUTING INPUT OUTPUT POSTROUTING] [DOCKER] 12" {
		t.Fatalf("read: %s", got)
	}
	left, err := after(saved, saved.undo(run, subnet, Rules{}))
	must(t, err)
	want := []string{"-A FORWARD -o docker0 -j DOCKER",
		"-A FORWARD -i playlet1 -m comment --comment playlet-dev-o3bvy4x -j ACCEPT"}
	if !slices.Equal(left.rules["filter"], want) || !slices.Equal(left.own["filter"], []string{"DOCKER"}) {
		t.Errorf("filter has %q and chains %q", left.rules["filter"], left.own["filter"])
	}
	// The remains in nat belong to portmap's own chains, which no other rule uses.
	if len(left.rules["nat"])+len(left.own["nat"]) > 0 {
		t.Errorf("nat has %q and chains %q", left.rules["nat"], left.own["nat"])
	}
	if left.undo(run, subnet, Rules{}) != "" {
		t.Error("undone twice, there is something to do")
	}
	if got := left.emptied(Rules{}); !slices.Equal(got, []string{"nat"}) {
		t.Errorf("emptied %q", got)
	}
	if got := left.emptied(Rules{Tables: []string{"nat"}}); len(got) > 0 {
		t.Errorf("emptied %q, which was there before", got)
	}
}

func TestPortmapChains_StayIfEarlierOrUsed(t *testing.T) {
	text := read(t, "testdata/mapped.rules")
	kept := func(why string, saved ruleset, before Rules) {
		left, err := after(saved, saved.undo(run, subnet, before))
		must(t, err)
		for _, chain := range portmapChains {
			if !slices.Contains(left.own["nat"], chain) {
				t.Errorf("%s: chain %s is gone", why, chain)
			}
		}
		if strings.Contains(strings.Join(left.rules["nat"], "\n"), "playlet-dev") {
			t.Errorf("%s: left: %q", why, left.rules["nat"])
		}
	}
	kept("before", parseRuleset(text), Rules{Chains: []string{"nat/" + portmapChains[0], "nat/" + portmapChains[1], "nat/" +
		portmapChains[2]}})
	other := `-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"theirs\" id: \"1\"" -m multiport --dports 80 -j CNI-DN-0000000000000000000aa`
	kept("used", parseRuleset(strings.Replace(text, "-A CNI-HOSTPORT-MASQ", other+"\n-A CNI-HOSTPORT-MASQ", 1)), Rules{})
}

// A plugin may be killed after each of its steps, in making and in removing.
func TestWhatAKilledPluginLeavesIsFound(t *testing.T) {
	const chains = "*nat\n:POSTROUTING ACCEPT [0:0]\n:CNI-DN-a5f85f184fbef1f1055f9 - [0:0]\n:CNI-a5f85f184fbef1f1055f90f0 - [0:0]\n"
	for what, rules := range map[string]string{
		"empty chains":  "",
		"a filled one":  `-A CNI-a5f85f184fbef1f1055f90f0 -d 10.199.0.0/24 -m comment --comment "name: \"playlet-dev-o3bvy4\" id: \"1\"" -j ACCEPT`,
		"a mapped port": "-A CNI-DN-a5f85f184fbef1f1055f9 -s 10.199.0.0/24 -p tcp -m tcp --dport 18080 -j CNI-HOSTPORT-SETMARK",
	} {
		saved := parseRuleset(chains + rules + "\nCOMMIT\n")
		left, err := after(saved, saved.undo(run, subnet, Rules{}))
		must(t, err)
		for _, order := range left.orphans(Rules{}) {
			left, err = after(left, order)
			must(t, err)
		}
		if len(left.own["nat"])+len(left.rules["nat"]) > 0 {
			t.Errorf("%s: left %q %q", what, left.own["nat"], left.rules["nat"])
		}
	}
	before := Rules{Chains: []string{"nat/CNI-DN-a5f85f184fbef1f1055f9", "nat/CNI-a5f85f184fbef1f1055f90f0"}}
	if got := parseRuleset(chains + "COMMIT\n").orphans(before); len(got) > 0 {
		t.Errorf("chains that were there before go: %q", got)
	}
}

// Whatever rules others have made, only the run's rules are undone.
func TestOthersRulesAreNeverTouched(t *testing.T) {
	chain := rapid.SampledFrom([]string{"POSTROUTING", "DOCKER", "CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ",
		"CNI-0123456789abcdef01234567", "KUBE-MARK"})
	match := rapid.SampledFrom([]string{
		"-s 10.88.0.0/16", "-d 10.199.0.0/240", "-s 10.199.0.0/16", `-m comment --comment "name: \"playlet-dev-other1\" id: \"1\""`,
		"-m comment --comment playlet-dev-o3bvy42", "-m comment --comment \"-j playlet-dev\"", "",
	})
	rapid.Check(t, func(t *rapid.T) {
		saved := parseRuleset("*nat\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n")
		chains := rapid.SliceOfNDistinct(chain, 0, 4, rapid.ID).Draw(t, "chains")
		var before Rules
		for _, c := range chains {
			if c != "POSTROUTING" {
				saved.own["nat"] = append(saved.own["nat"], c)
				before.Chains = append(before.Chains, "nat/"+c)
			}
		}
		for range rapid.IntRange(0, 6).Draw(t, "rules") {
			from, to := chain.Draw(t, "chain"), chain.Draw(t, "target")
			saved.rules["nat"] = append(saved.rules["nat"],
				strings.Join(strings.Fields("-A "+from+" "+match.Draw(t, "match")+" -j "+to), " "))
		}
		if orders := saved.undo(run, subnet, before) + strings.Join(saved.orphans(before), ""); orders != "" {
			t.Fatalf("of %q\nand chains %q this is undone:\n%s", saved.rules["nat"], saved.own["nat"], orders)
		}
	})
}
