package network

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// portmapChains are those that the plugin portmap makes with the first mapped port and never removes.
var portmapChains = []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"}

// podChain are names of chains that the plugins bridge and portmap make for one pod: a hash of network and container.
var podChain = regexp.MustCompile(`^CNI-(DN-|SN-)?[0-9a-f]{20,24}$`)

// ruleset is the output of iptables-save by table.
type ruleset struct {
	tables []string // in their order
	// builtin and own chains, and rules ("-A CHAIN …") of each table. The builtin ones, which may be removed, exclude chains with
	// another policy than the default.
	builtin, own, rules map[string][]string
}

// parseRuleset reads the output of iptables-save. Comments and counters are not kept.
func parseRuleset(saved string) ruleset {
	r := ruleset{builtin: map[string][]string{}, own: map[string][]string{}, rules: map[string][]string{}}
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			r.tables = append(r.tables, table)
		case strings.HasPrefix(line, ":"):
			name, policy, _ := strings.Cut(line[1:], " ")
			if strings.HasPrefix(policy, "-") {
				r.own[table] = append(r.own[table], name)
			} else if strings.HasPrefix(policy, "ACCEPT") {
				r.builtin[table] = append(r.builtin[table], name)
			}
		case strings.HasPrefix(line, "-A "):
			r.rules[table] = append(r.rules[table], line)
		}
	}
	return r
}

// chains lists tables' own chains as "table/chain".
func (r ruleset) chains() []string {
	var out []string
	for _, table := range r.tables {
		for _, chain := range r.own[table] {
			out = append(out, table+"/"+chain)
		}
	}
	return out
}

// undo returns the input of iptables-restore --noflush that removes the run's remains. These are rules with the run's name in a
// comment, and the chains that they are in or jump to. portmap's own chains are included if they are new and no other rules use
// them. It is empty if nothing remains.
func (r ruleset) undo(run, subnet string, before Rules) string {
	var out strings.Builder
	for _, table := range r.tables {
		if lines := r.undoTable(table, run, subnet, before); len(lines) > 0 {
			fmt.Fprintf(&out, "*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
		}
	}
	return out.String()
}

func (r ruleset) undoTable(table, run, subnet string, before Rules) []string {
	gone := r.gone(table, run, subnet, before)
	var orders, chains []string
	for _, rule := range r.rules[table] {
		ours := carries(rule, run) || gone[jump(rule)]
		if ours && !gone[chainOf(rule)] { // the others go with their chain
			orders = append(orders, "-D "+strings.TrimPrefix(rule, "-A "))
		}
	}
	for _, chain := range r.own[table] {
		if gone[chain] {
			chains = append(chains, chain)
		}
	}
	for _, chain := range chains {
		orders = append(orders, "-F "+chain)
	}
	for _, chain := range chains {
		orders = append(orders, "-X "+chain)
	}
	return orders
}

// gone are the chains of a table that go.
func (r ruleset) gone(table, run, subnet string, before Rules) map[string]bool {
	gone := map[string]bool{}
	shared := false // a port of someone else's is mapped
	for _, rule := range r.rules[table] {
		chain, target := chainOf(rule), jump(rule)
		switch {
		case carries(rule, run):
			gone[chain] = podChain.MatchString(chain)
			gone[target] = podChain.MatchString(target)
		case podChain.MatchString(chain) && strings.Contains(rule+" ", " "+subnet+" "):
			gone[chain] = true // a plugin that was killed had not made, or had removed, the way to it
		case chain == portmapChains[0]:
			shared = true
		}
	}
	for _, chain := range portmapChains {
		if !shared && slices.Contains(r.own[table], chain) && !slices.Contains(before.Chains, table+"/"+chain) {
			gone[chain] = true
		}
	}
	return gone
}

// orphans returns inputs of iptables-restore --noflush, one per order, that remove pods' chains that are new, empty and unused.
// A plugin that is killed between the creation of its chain and the first rule leaves one, without a trace of its owner. Another
// plugin could be at that very point. A chain that it has filled meanwhile is not removed, and an empty one is created again
// with its next attempt.
func (r ruleset) orphans(before Rules) []string {
	var out []string
	for _, table := range r.tables {
		used := map[string]bool{}
		for _, rule := range r.rules[table] {
			used[chainOf(rule)], used[jump(rule)] = true, true
		}
		for _, chain := range r.own[table] {
			if podChain.MatchString(chain) && !used[chain] && !slices.Contains(before.Chains, table+"/"+chain) {
				out = append(out, fmt.Sprintf("*%s\n-X %s\nCOMMIT\n", table, chain))
			}
		}
	}
	return out
}

// emptied are the tables that were not there before and hold nothing now: with nftables behind it, iptables makes a
// table's chains with the first rule, and leaves them.
func (r ruleset) emptied(before Rules) []string {
	return slices.DeleteFunc(slices.Clone(r.tables), func(table string) bool {
		return len(r.rules[table]) > 0 || len(r.own[table]) > 0 || slices.Contains(before.Tables, table)
	})
}

// tableChain is a chain of a table.
type tableChain struct{ table, name string }

// unused are the tables' own chains that were not there before and hold no rule.
func (r ruleset) unused(before Rules) (out []tableChain) {
	for _, table := range r.tables {
		for _, chain := range r.builtin[table] {
			used := slices.ContainsFunc(r.rules[table], func(rule string) bool { return chainOf(rule) == chain })
			if !used && slices.Contains(before.Absent, table+"/"+chain) {
				out = append(out, tableChain{table, chain})
			}
		}
	}
	return out
}

// carries reports whether a rule's comment contains the name of this run. Names are unique and end before a character that no
// name contains.
func carries(rule, name string) bool {
	for rest := rule; ; {
		_, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		if after == "" || !strings.ContainsAny(after[:1], "abcdefghijklmnopqrstuvwxyz0123456789") {
			return true
		}
		rest = after
	}
}

// chainOf is the chain that a rule is in.
func chainOf(rule string) string {
	fields := strings.Fields(rule)
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// jump is where a rule leads to; comments come before it.
func jump(rule string) string {
	_, target, found := cutLast(rule, " -j ")
	if !found {
		return ""
	}
	return strings.Fields(target + " .")[0]
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
